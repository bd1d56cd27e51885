"""Authentication of a bookie's clients. Decides; no I/O.

A bookie can demand three things: TLS; a client certificate with an allowed role; a user's password, proven by
the handshake of SASL. Until a client meets the demands, its adds and reads are answered with UNAUTHORIZED. A
request that has no such answer, a certificate without an allowed role, and the 64th refusal end the
connection.

A certificate's role is the first of its organizational unit `0:ROLE,ROLE;1:CLUSTER`, as Apache's bookies read
it, or its common name where the unit names none.

Source: BookKeeper's AuthHandler, BookieAuthZFactory and SASL provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.auth.digest_md5 import DigestError, DigestServer
from magnetar.auth.identity import certificate_role, subject_values
from magnetar.bookie.network.refusals import refused
from magnetar.wire.bookkeeper.requests import Auth, BatchRead, BookieInfo, Request, StartTls, Unserved
from magnetar.wire.bookkeeper.responses import AuthDone, BookieInfoDone, Refused, Response
from magnetar.wire.bookkeeper.status import Status

NO_AUTHENTICATION: Final = "AuthDisabledPlugin"
"""The answer to a client that tries to authenticate when the bookie demands nothing."""
SASL: Final = "sasl"
"""The handshake by user and password."""
_ROLES: Final = "0"
_REFUSALS_MAX: Final = 64
"""Refused requests of one client. A client that goes on without authenticating costs the bookie work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the bookie demands of clients."""

    tls_required: bool = False
    roles: frozenset[str] = frozenset()
    """Allowed roles of client certificates; empty: no certificate is demanded. Needs TLS."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by user; empty: no password is demanded."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is demanded."""
        return not (self.tls_required or self.roles or self.users)


def role_of(certificate: Mapping[str, object] | None) -> str | None:
    """The role in a verified certificate, as `ssl.SSLSocket.getpeercert` returns it; None without one."""
    units = subject_values(certificate, "organizationalUnitName")
    for part in units[0].split(";") if units else ():
        code, colon, names = part.partition(":")
        if colon and code.strip() == _ROLES and (role := names.split(",")[0].strip()):
            return role
    return certificate_role(certificate)


class Door:
    """How far one client has met the demands."""

    def __init__(self, access: Access, nonce: Callable[[], str]) -> None:
        """`nonce`: returns a word that was never used before."""
        self._access = access
        self._nonce = nonce
        self._tls_done = not (access.tls_required or access.roles)
        self._user_done = not access.users
        self._digest: DigestServer | None = None
        self._refusals = 0
        self.is_shut = False
        """Whether the client has failed: the connection ends with the last answer."""

    @property
    def is_open(self) -> bool:
        """Whether the client may send any request."""
        return self._tls_done and self._user_done

    def secured(self, certificate: Mapping[str, object] | None) -> str | None:
        """TLS is established: why this client is refused, or None."""
        if self._access.roles:
            role = role_of(certificate)
            if role not in self._access.roles:
                self.is_shut = True
                return "no certificate with a role" if role is None else f"role {role!r} is not let in"
        self._tls_done = True
        return None

    def answer(self, request: Request) -> Response | None:
        """The answer to a client that has not met the demands; None ends the connection."""
        if isinstance(request, Auth):
            return self._step(request)
        self._refusals += 1
        self.is_shut = self.is_shut or self._refusals >= _REFUSALS_MAX
        return _refusal(request)

    def _step(self, request: Auth) -> Response | None:
        if self._user_done or not self._tls_done:
            # A client certificate is demanded; a password would be sent in clear.
            return self._failed(request)
        if request.plugin != SASL:
            return self._failed(request)
        try:
            if self._digest is None:
                self._digest = DigestServer(self._access.users, self._nonce())
                payload = self._digest.challenge()
            else:
                payload = self._digest.answer(request.payload)
                self._user_done = True
        except DigestError:
            return self._failed(request)
        return AuthDone(SASL, payload, txn_id=request.txn_id)

    def _failed(self, request: Auth) -> Response | None:
        self.is_shut = True
        if request.txn_id is None:
            return None
        return AuthDone(request.plugin, b"", Status.UNAUTHORIZED, request.txn_id)


def _refusal(request: Request) -> Response | None:
    no = Status.UNAUTHORIZED
    match request:
        case BookieInfo():
            return BookieInfoDone(no, request.txn_id)
        case Unserved():
            return Refused(request.operation, no, request.txn_id)
        case Auth() | BatchRead() | StartTls():
            return None
        case _:
            return refused(request, no)
