"""Errors of the admin client.

AdminCallError (a ClientError)
├── AdminRefusedError       the API answered with an error status
├── AdminUnreachableError   no answer at the address, or the connection broke
└── AdminTargetError        the address, the token or the certificates cannot be used
"""

from __future__ import annotations

from magnetar.base.errors import ClientError


class AdminCallError(ClientError):
    """A call failed. The message names the call, the address, and the next step."""


class AdminRefusedError(AdminCallError):
    """The API refused a call. `status`: HTTP status; `reason`: text of the answer."""

    def __init__(self, method: str, path: str, status: int, reason: str) -> None:
        super().__init__(f"{reason or 'no reason was given'} ({method} {path} answered {status})")
        self.method = method
        self.path = path
        self.status = status
        self.reason = reason


class AdminUnreachableError(AdminCallError):
    """No connection, a broken one, or no answer in time. The call may have taken effect."""

    retriable = True

    def __init__(self, url: str, detail: str, remedy: str) -> None:
        super().__init__(f"{url} cannot be reached: {detail}; {remedy}")
        self.url = url


class AdminTargetError(AdminCallError):
    """The address, the token or the certificates cannot be used."""
