"""Handles credentials that expire while their connection is open.

    state        event             then
    VALID        credential ended  CHALLENGED, when the client can renew it; else the connection is closed
    CHALLENGED   next check        the connection is closed: the client did not answer
    CHALLENGED   answer            VERIFYING
    VERIFYING    proven            VALID, with the new end
    VERIFYING    refused           the connection is closed

A client is challenged only after its credential has expired: clients keep a credential until then, and would
answer an earlier challenge with the same one.

Source: Pulsar's AUTH_CHALLENGE and AUTH_RESPONSE; the refresh check of its broker.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity


class RenewalState(enum.Enum):
    """State of the renewal of a credential; see the table above."""

    VALID = enum.auto()
    CHALLENGED = enum.auto()
    VERIFYING = enum.auto()


class RenewalVerdict(enum.Enum):
    """The result of a check, which the connection must carry out."""

    KEEP = enum.auto()
    CHALLENGE = enum.auto()
    CLOSE = enum.auto()


class Renewal:
    """Expiry and renewal of the credentials of one connection."""

    __slots__ = ("_client_renews", "_credentials", "_others_end_ms", "identity", "reason", "state")

    def __init__(
        self,
        identity: Identity,
        credentials: Credentials | None,
        *,
        client_renews: bool,
        others_end_ms: int | None = None,
    ) -> None:
        """`credentials`: those that the client can renew; None when a proxy forwarded only its role.

        `client_renews`: whether the client understands AUTH_CHALLENGE. `others_end_ms`: Unix ms when the
        credential of the proxy ends, which cannot be renewed on this connection; None: never.
        """
        self.identity = identity
        """The identity that was proven last."""
        self.state = RenewalState.VALID
        self.reason = ""
        """Why the connection is to be closed, after a check that says so."""
        self._credentials = credentials
        self._client_renews = client_renews
        self._others_end_ms = others_end_ms

    @property
    def method(self) -> str:
        """The method of the credential that the client must renew."""
        return "" if self._credentials is None else self._credentials.method

    def check(self, now_ms: int) -> RenewalVerdict:
        """Returns what the connection must do now; call it at each check."""
        if _ended(self._others_end_ms, now_ms):
            return self._close("the proxy's credentials have expired")
        if self.state is RenewalState.VERIFYING or not _ended(self.identity.expires_ms, now_ms):
            return RenewalVerdict.KEEP
        if self.state is RenewalState.CHALLENGED:
            return self._close("the client's credentials have expired and it did not renew them")
        if not self._client_renews or self._credentials is None:
            return self._close("the client's credentials have expired and it cannot renew them")
        self.state = RenewalState.CHALLENGED
        return RenewalVerdict.CHALLENGE

    def answered(self, method: str, data: bytes) -> Credentials:
        """Takes an AUTH_RESPONSE; returns the credentials that must be verified. Raises
        AuthenticationError."""
        if self.state is not RenewalState.CHALLENGED or self._credentials is None:
            raise AuthenticationError("AUTH_RESPONSE without a challenge")
        if method not in ("", self._credentials.method):
            raise AuthenticationError("credentials are renewed by the method that they were shown by")
        self.state = RenewalState.VERIFYING
        return Credentials(self._credentials.method, data, self._credentials.certificate_role)

    def proven(self, identity: Identity) -> None:
        """Takes the identity of verified new credentials. Raises AuthenticationError when it is another
        one."""
        assert self.state is RenewalState.VERIFYING
        if (identity.role, set(identity.also)) != (self.identity.role, set(self.identity.also)):
            raise AuthenticationError("renewed credentials must name the same role")
        self.state = RenewalState.VALID
        others = self.identity.proofs[len(identity.proofs) :]
        self.identity = replace(identity, via=self.identity.via, proofs=(*identity.proofs, *others))

    def _close(self, reason: str) -> RenewalVerdict:
        self.reason = reason
        return RenewalVerdict.CLOSE


def _ended(end_ms: int | None, now_ms: int) -> bool:
    return end_ms is not None and now_ms >= end_ms
