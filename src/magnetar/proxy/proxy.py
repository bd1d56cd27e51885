"""The proxy: what all its connections share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from magnetar.auth.identity import Credentials, Identity
from magnetar.base.clock import Clock
from magnetar.broker.session.greetings import LOOK_S, Greetings
from magnetar.observability.metrics import Exposition
from magnetar.proxy import figures as figures_of
from magnetar.proxy.client_states import ClientState
from magnetar.proxy.figures import Count, ProxyFigures
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.session import ProxySession
from magnetar.runtime.tasks import TaskGroup, pause

_log = logging.getLogger("magnetar.proxy")

Identify = Callable[[Credentials, str], Awaitable[Identity]]
"""Checks credentials of a peer. Raises AuthenticationError."""
Counts = Callable[[Identity], bool]

_CREDENTIALS_S: Final = 30.0
"""Seconds between two looks at credentials that end."""
_DRAIN_STEPS: Final = 20


class PassedSocket(Protocol):
    """A WebSocket that is passed on to a broker."""

    identity: Identity | None
    """What its client has proven here; None: nothing."""

    def close(self) -> None:
        """Ends it."""


class Proxy:
    """See the module's text. `begin` after construction, `drain` and `close` at the end."""

    def __init__(
        self,
        options: ProxyOptions,
        targets: KnownBrokers,
        clock: Clock,
        *,
        identify: Identify | None = None,
        counts: Counts | None = None,
        credentials: Credentials | None = None,
        rejected: Count = lambda: 0,
    ) -> None:
        """`identify`: checks clients, None: they are not authenticated here. `counts`: whether an identity
        would still be accepted. `credentials`: with which the proxy comes to brokers.
        `rejected`: how many connections the listeners refused."""
        self.options = options
        self.targets = targets
        self.clock = clock
        self.credentials = credentials
        self.greetings = Greetings(options.connect_s)
        self.figures = ProxyFigures(rejected)
        self.sessions: set[ProxySession] = set()
        self.sockets: set[PassedSocket] = set()
        """WebSockets of clients."""
        self.tasks = TaskGroup("proxy")
        self.draining = False
        """Whether the proxy is about to end."""
        self._identify = identify
        self._counts = counts
        self._lookups = 0
        self._links = 0

    @property
    def authenticates(self) -> bool:
        """Whether clients must show credentials here."""
        return self._identify is not None

    async def identify(self, credentials: Credentials, peer: str) -> Identity:
        """What they prove. Raises AuthenticationError."""
        assert self._identify is not None, "asked only where clients are authenticated"
        return await self._identify(credentials, peer)

    def begin(self) -> None:
        """Begins the rounds."""
        self.tasks.every(LOOK_S, self._look)
        self.tasks.every(self.options.keep_alive_s, self._keep_alive)
        if self.authenticates:
            self.tasks.every(_CREDENTIALS_S, self.check_credentials)

    # -- questions ---------------------------------------------------------------------------------

    def take_place(self) -> bool:
        """Counts one more question; returns False when there are too many."""
        if self._lookups >= self.options.lookups_max:
            self.figures.refused_lookups += 1
            return False
        self._lookups += 1
        return True

    def give_place_back(self) -> None:
        """A question is answered."""
        self._lookups -= 1
        assert self._lookups >= 0, "more answers than questions"

    # -- sockets to brokers ------------------------------------------------------------------------

    def take_link(self) -> bool:
        """Counts one more socket to a broker; returns False when there are too many."""
        if 0 < self.options.links_max <= self._links:
            return False
        self._links += 1
        return True

    def give_link_back(self) -> None:
        """A socket to a broker is closed."""
        self._links -= 1
        assert self._links >= 0, "more sockets closed than opened"

    def credentials_changed(self, own: Credentials | None) -> None:
        """The proxy has new credentials of its own: links that are opened from now on show them."""
        self.credentials = own
        for session in list(self.sessions):
            session.introduce_anew()

    # -- rounds ------------------------------------------------------------------------------------

    async def _look(self) -> None:
        self.greetings.look()
        now_s = self.clock.monotonic_ms() / 1000
        for session in list(self.sessions):
            session.look(now_s)

    async def _keep_alive(self) -> None:
        for session in list(self.sessions):
            session.keep_alive()

    async def check_credentials(self) -> None:
        """Challenges or closes clients whose credentials have ended."""
        now_ms = self.clock.now_ms()
        for session in list(self.sessions):
            if (
                session.identity is not None
                and self._counts is not None
                and not self._counts(session.identity)
            ):
                session.close("the client's credentials count no more")
            else:
                session.check_credentials(now_ms)
        for socket in list(self.sockets):
            known = socket.identity
            if known is not None and (
                (known.expires_ms is not None and now_ms >= known.expires_ms)
                or (self._counts is not None and not self._counts(known))
            ):
                socket.close()

    # -- the end -----------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Closes all connections, one part after the other, so that clients do not come back all at once.
        New ones must not be accepted any more."""
        self.draining = True
        if self.sessions:
            _log.info("%d connections are closed within %g s", len(self.sessions), seconds)
        for step in range(_DRAIN_STEPS, 0, -1):
            left, sockets = list(self.sessions), list(self.sockets)
            if not left and not sockets:
                return
            for session in left[: -(-len(left) // step)]:
                session.close("the proxy ends")
            for socket in sockets[: -(-len(sockets) // step)]:
                socket.close()
            await pause(seconds / _DRAIN_STEPS)

    async def close(self) -> None:
        """Closes what is left, at once."""
        for session in list(self.sessions):
            session.abort("the proxy has ended")
        for socket in list(self.sockets):
            socket.close()
        await self.tasks.close()

    # -- figures -----------------------------------------------------------------------------------

    def stats(self) -> list[dict[str, object]]:
        """A row for each connection, as `/proxy-stats` has them."""
        return [
            {
                "client": session.peer,
                "role": None if session.identity is None else session.identity.role,
                "state": session.state.value,
                "broker": None if session.target is None else str(session.target),
            }
            for session in self.sessions
        ]

    def collect(self, out: Exposition) -> Iterable[None]:
        """A collector of `/metrics`."""
        return figures_of.collect(
            self.figures,
            out,
            active=len(self.sessions),
            tunnels=sum(session.state is ClientState.SPLICED for session in self.sessions),
            lookups=self._lookups,
            brokers=len(self.targets),
        )
