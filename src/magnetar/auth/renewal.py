"""Credentials that end while their connection is open.

    state        event             then
    VALID        credential ended  CHALLENGED, when the client can renew it; else the connection is closed
    CHALLENGED   next check        the connection is closed: the client did not answer
    CHALLENGED   answer            VERIFYING
    VERIFYING    proven            VALID, with the new end
    VERIFYING    refused           the connection is closed

A client is challenged when its credential has ended, not before: clients keep a credential until then and
would answer with the one that they have shown already.

Source: Pulsar's AUTH_CHALLENGE and AUTH_RESPONSE; the refresh check of its broker.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity


class RenewalState(enum.Enum):
    """Where the conversation about a credential stands."""

    VALID = enum.auto()
    CHALLENGED = enum.auto()
    VERIFYING = enum.auto()


class RenewalVerdict(enum.Enum):
    """What a check asks of the connection."""

    KEEP = enum.auto()
    CHALLENGE = enum.auto()
    CLOSE = enum.auto()


class Renewal:
    """The end of one connection's credentials, and their renewal."""

    __slots__ = ("_client_renews", "_credentials", "_others_end_ms", "identity", "reason", "state")

    def __init__(
        self,
        identity: Identity,
        credentials: Credentials | None,
        *,
        client_renews: bool,
        others_end_ms: int | None = None,
    ) -> None:
        """`credentials`: those that the client can renew; None when it cannot: a proxy forwarded its role.

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
        """The method that the client is challenged for."""
        return "" if self._credentials is None else self._credentials.method

    def check(self, now_ms: int) -> RenewalVerdict:
        """Called again and again; what is to be done now."""
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
        """Takes an AUTH_RESPONSE; what has to be proven now. Raises AuthenticationError."""
        if self.state is not RenewalState.CHALLENGED or self._credentials is None:
            raise AuthenticationError("AUTH_RESPONSE without a challenge")
        if method not in ("", self._credentials.method):
            raise AuthenticationError("credentials are renewed by the method that they were shown by")
        self.state = RenewalState.VERIFYING
        return Credentials(self._credentials.method, data, self._credentials.certificate_role)

    def proven(self, identity: Identity) -> None:
        """The new credentials are valid. Raises AuthenticationError when they are another identity's."""
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
