"""The socket of a client of the proxy (driver): parsed until it is spliced with a broker's."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, shown_role
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.proxy.broker_links import BrokerLink, BrokerTunnel, QuestionLink
from magnetar.proxy.client_states import ClientState
from magnetar.proxy.known_brokers import BrokerAddress
from magnetar.proxy.lookups import Link
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.session import ProxySession
from magnetar.proxy.splice import Half, ReadBuffer
from magnetar.wire.frames import FrameError
from magnetar.wire.server import ServerParser

_log = logging.getLogger("magnetar.proxy")

_QUESTION_BYTES_MAX: Final = 512 << 10
"""A list of topics may be asked for with 384 KiB of properties."""


class ClientConnection(Half):
    """A client's socket."""

    def __init__(self, proxy: Proxy, shared: ReadBuffer, tls: ssl.SSLContext | None) -> None:
        """`tls`: for connections to brokers; None: they are plain."""
        super().__init__(proxy, shared)
        self._all = proxy
        self._parser = ServerParser(_QUESTION_BYTES_MAX)
        self._tls = tls
        self._parsing = False
        self.takes = True
        """See `LinkOwner`."""
        self._passed = (0, 0.0)
        """Reads of both sides at the last look that found some, and when that was."""
        self._links: set[BrokerLink] = set()
        self._session: ProxySession

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._session = ProxySession(
            self._all,
            self,
            peer=f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer),
            certificate_role=shown_role(transport.get_extra_info),
        )
        self._proxy.figures.connections += 1
        self._all.sessions.add(self._session)
        self._proxy.greetings.came(self._session)

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.ended("the connection is gone")
        self._all.sessions.discard(self._session)
        for link in list(self._links):
            link.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # Answers to what would be read could not leave.
        self.takes = False
        for link in self._links:
            link.stop_reading()
        self.stop_reading() if self._other is None else super().pause_writing()

    def resume_writing(self) -> None:
        self.takes = True
        for link in self._links:
            link.go_on_reading()
        if self._other is None:
            self.read_on()
        else:
            super().resume_writing()

    # -- commands ----------------------------------------------------------------------------------

    def _parse(self) -> None:
        """Hands on what was read, as far as the session takes it."""
        if self._parsing:
            return
        self._parsing = True
        try:
            self._parse_all()
        except FrameError as error:
            self._session.close(f"illegal frame: {error}")
        finally:
            self._parsing = False

    def _parse_all(self) -> None:
        session, rest = self._session, self._rest
        needed = 4
        while not session.closed and (room := session.room) > 0 and len(rest) >= needed:
            events, taken = self._parser.parse(rest, len(rest), room)
            del rest[:taken]
            if events:
                session.handle(events)
            needed = max(self._parser.needed, 4)
            if not events:
                break
        if session.state is ClientState.SILENT and rest:
            if self._parser.needed > CONNECT_BYTES_MAX:
                session.close("a large frame before CONNECT was answered")
            elif not self._proxy.greetings.keep(session, len(rest)):
                session.close("half a CONNECT, and too much is kept of those of others")
        if not session.closed and session.room <= 0:
            self.stop_reading()

    # -- what the session asks for -----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self, reason: str) -> None:
        level = logging.INFO if self._all.draining else logging.WARNING
        _log.log(level, "%s: connection closed: %s", self._session.peer, reason)
        self.finish()

    def abort(self, reason: str) -> None:
        _log.info("%s: connection dropped: %s", self._session.peer, reason)
        self.gone = True
        self.transport.abort()

    def look(self, now_s: float) -> None:
        reads = self.reads + (0 if self._other is None else self._other.reads)
        if reads != self._passed[0] or not self._passed[1]:
            self._passed = reads, now_s
        elif now_s - self._passed[1] > self._proxy.options.idle_s:
            self._session.abort("nothing passes any more, not even a PING")

    def read_on(self) -> None:
        if self.takes and self._other is None and self._session.room > 0:
            self._parse()
            self._read_again()

    def _read_again(self) -> None:
        if self.takes and self._session.room > 0:
            self.go_on_reading()

    def check(self, credentials: Credentials) -> None:
        self._all.tasks.spawn(self._check(credentials))

    async def _check(self, credentials: Credentials) -> None:
        try:
            identity = await self._all.identify(credentials, self._session.peer)
        except AuthenticationError as error:
            self._session.refused(error)
        else:
            self._session.proven(identity)

    def reach(self, target: BrokerAddress, introduction: bytes) -> None:
        self._begin(BrokerTunnel(self._proxy, self._shared, target, introduction, self))

    def open_link(self, target: BrokerAddress, introduction: bytes) -> Link:
        link = QuestionLink(self._proxy, self._shared, target, introduction, self)
        self._begin(link)
        return link

    def _begin(self, link: BrokerLink) -> None:
        self._links.add(link)
        self._all.tasks.spawn(link.open(self._tls))

    # -- of links ----------------------------------------------------------------------------------

    @property
    def session(self) -> ProxySession:
        """Its session."""
        return self._session

    def left(self, link: BrokerLink) -> None:
        """A link is closed."""
        self._links.discard(link)

    def joined(self, link: BrokerTunnel, rest: bytes) -> None:
        """The broker has answered CONNECTED, which is in `rest` with all that came after it."""
        self._links.discard(link)
        if not self._session.spliced():
            link.end()
            return
        self._proxy.figures.spliced += 1
        sent = bytes(self._rest)
        link.splice(self, rest)
        self.splice(link, sent)
        self.go_on_reading()
