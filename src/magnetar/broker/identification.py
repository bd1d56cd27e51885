"""Finds out which identity credentials prove: at the broker, and at a proxy before it.

Every refusal leaves one line in the log `magnetar.audit`.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from magnetar.auth.authentication import Authentication, Errand, OwnTokens
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.clock import Clock
from magnetar.observability.logs import SUBJECT
from magnetar.runtime.tasks import SingleFlight
from magnetar.runtime.threads import in_thread

_audit = logging.getLogger("magnetar.audit")

_SHOWN_CHARS_MAX = 300
"""Characters of a client's text that are logged; longer than any accepted name."""

_CHECKS_MAX = 2
"""Passwords that are checked at a time: other work has threads too."""
_WAITING_MAX = 32
"""Waiting identifications per address. At a quarter of a second each, the last one waits for eight of them in
turn."""

_ERRANDS_MAX = 8
"""Rounds of one identification; each teaches its provider something, so that a few suffice."""


class Identification:
    """Authenticates clients."""

    def __init__(self, authentication: Authentication, clock: Clock) -> None:
        self.authentication = authentication
        self._clock = clock
        self._errands: SingleFlight[None] = SingleFlight()
        # Most brokers have no guard, and load none of it.
        from magnetar.auth.remembered import Remembered
        from magnetar.runtime.fair_places import FairPlaces

        self._checks = FairPlaces(_CHECKS_MAX, waiting_max=_WAITING_MAX)
        self._remembered = Remembered(os.urandom(32))

    async def identify(self, credentials: Credentials, peer: str) -> Identity:
        """Raises AuthenticationError."""
        try:
            for _ in range(_ERRANDS_MAX):
                answer = await self._ask(credentials, peer)
                if isinstance(answer, Identity):
                    return self._without_proxies(answer)
                await self._run(answer)
            raise AuthenticationError("what is needed to verify the credentials cannot be fetched")
        except AuthenticationError as error:
            self.refused_credentials(credentials, peer, error)
            raise

    def _without_proxies(self, identity: Identity) -> Identity:
        """A proxy's role speaks for others only, and not beside other roles of the same credential."""
        proxies = self.authentication.proxy_roles
        if proxies.isdisjoint(identity.also):
            return identity
        return replace(identity, also=tuple(role for role in identity.also if role not in proxies))

    async def _ask(self, credentials: Credentials, peer: str) -> Identity | Errand:
        authentication = self.authentication
        provider = authentication.provider(credentials)
        now_ms = self._clock.now_ms()
        if provider is None or not provider.slow:
            return authentication.identify(credentials, now_ms)
        if (known := self._remembered.find(credentials, now_ms)) is not None:
            return known
        from magnetar.runtime.fair_places import CrowdedError

        try:
            async with self._checks.take(peer.rpartition(":")[0]):
                answer = await in_thread(lambda: authentication.identify(credentials, now_ms))
        except CrowdedError as error:
            raise AuthenticationError(
                f"{_WAITING_MAX} log-ins of this address wait to be checked: try again"
            ) from error
        except AuthenticationError as error:
            self._note(authentication, credentials, error)
            raise
        if isinstance(answer, Identity):
            self._note(authentication, credentials, answer)
        return answer

    def _note(
        self, by: Authentication, credentials: Credentials, answer: Identity | AuthenticationError
    ) -> None:
        # The keys were found with the former settings and do not count any more.
        if by is self.authentication:
            self._remembered.note(credentials, answer, self._clock.now_ms())

    def change(self, authentication: Authentication) -> None:
        """Replaces the users, keys and roles; functions that run keep their tokens."""
        self.authentication = replace(authentication, functions=self.authentication.functions)
        self._remembered.forget()

    def accept(self, tokens: OwnTokens) -> None:
        """Takes tokens of functions too."""
        self.authentication = replace(self.authentication, functions=tokens)

    async def _run(self, errand: Errand) -> None:
        # All that wait for the same keys share one request for them, and one thread.
        await self._errands.run(errand.target, lambda: in_thread(errand.run))

    @staticmethod
    def refused_credentials(credentials: Credentials, peer: str, error: AuthenticationError) -> None:
        """Notes that credentials were refused."""
        _audit.warning(
            "refused: credentials of %s, method %r: %s",
            peer,
            credentials.method[:40],
            cut(str(error)),
            extra=subject(peer),
        )

    def now_ms(self) -> int:
        """Unix ms, as credentials count it."""
        return self._clock.now_ms()


def cut(text: str) -> str:
    """A client's text as far as it is logged."""
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


def subject(peer: str, role: str = "") -> dict[str, str]:
    """The owner of a refusal count; a client has another port with each connection."""
    return {SUBJECT: f"{peer.rpartition(':')[0] or peer} {role[:100]}"}
