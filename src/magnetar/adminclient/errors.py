"""Errors of the admin client.

AdminCallError (a ClientError)
├── AdminRefusedError       the API answered with an error status
├── AdminUnreachableError   no answer at the address, or the connection broke
└── AdminTargetError        the address, the token or the certificates cannot be used
"""

from __future__ import annotations

from magnetar.base.errors import ClientError


class AdminCallError(ClientError):
    """A call failed. The message names what, where, and what to do about it."""


class AdminRefusedError(AdminCallError):
    """The API refused. `status` is the HTTP status, `reason` what it said."""

    def __init__(self, method: str, path: str, status: int, reason: str) -> None:
        super().__init__(f"{reason or 'no reason was given'} ({method} {path} answered {status})")
        self.method = method
        self.path = path
        self.status = status
        self.reason = reason


class AdminUnreachableError(AdminCallError):
    """No connection, one that broke, or no answer in time. What was asked for may have happened."""

    retriable = True

    def __init__(self, url: str, detail: str, remedy: str) -> None:
        super().__init__(f"{url} cannot be reached: {detail}; {remedy}")
        self.url = url


class AdminTargetError(AdminCallError):
    """Where and as whom to call cannot be made sense of."""
