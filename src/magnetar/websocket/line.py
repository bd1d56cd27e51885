"""A WebSocket's connection to the broker: a session of the binary protocol without a socket.

Commands enter as events; the frames of the session are read as a client reads them. Authentication, rights,
limits, deduplication and statistics are those of the session, so WebSockets behave like other clients.

Messages for a slow WebSocket wait here, up to `WAITING_BYTES_MAX`; above it the session counts as a full
socket, and dispatch stops.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from magnetar.auth.identity import Credentials
from magnetar.broker.service import Broker
from magnetar.broker.session.session import Session
from magnetar.websocket.asking_line import WAITING_BYTES_MAX, AskingLine
from magnetar.wire.client import ClientEvent
from magnetar.wire.events import ServerEvent


class Line(AskingLine):
    """A connection within the process. Implements the session's transport."""

    def __init__(
        self,
        broker: Broker,
        *,
        peer: str,
        local_host: str,
        port: int,
        certificate_role: str | None,
        hear: Callable[[ClientEvent], None],
        ended: Callable[[str], None],
    ) -> None:
        """`hear`, `ended`: see `AskingLine`."""
        super().__init__(broker.config.message_bytes_max, hear=hear, ended=ended)
        self.broker = broker
        self._waiting_bytes = 0
        self._flush_scheduled = False
        self.session = Session(
            broker, self, peer=peer, local_host=local_host, port=port, certificate_role=certificate_role
        )

    # -- the client's side -------------------------------------------------------------------------

    async def connect(self, credentials: Credentials, original_role: str) -> None:
        """See `AskingLine.connect`."""
        await super().connect(credentials, original_role)
        # The WebSocket API tells of it when asked, so all clients can take it.
        self.session.takes_end_of_topic = True

    def hand(self, *events: ServerEvent) -> None:
        """See `AskingLine.hand`."""
        if not self.closed:
            self.session.handle(events)

    def held(self, size_bytes: int) -> None:
        """See `AskingLine.held`."""
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self.session.transport_writable = False

    def taken(self, size_bytes: int) -> None:
        """See `AskingLine.taken`."""
        self._waiting_bytes -= size_bytes
        session = self.session
        if (
            not session.transport_writable
            and self._waiting_bytes <= WAITING_BYTES_MAX // 2
            and not self.closed
        ):
            session.transport_writable = True
            session.resume_reading()
            session.pump()

    def end(self) -> None:
        """See `AskingLine.end`."""
        self._close("the client is gone", tell=False)

    # -- the session's transport ----------------------------------------------------------------------

    def flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        session = self.session
        size = session.out_bytes
        if not size:
            return
        out, session.out, session.out_bytes = session.out, [], 0
        data = b"".join(out)
        events, consumed = self._parser.parse(data, len(data))
        assert consumed == len(data), "a session writes whole frames"
        for event in events:
            self._take(event)
        session.wrote(size)
        if session.starved and session.transport_writable:
            self._loop.call_soon(session.pump)

    def unsent_bytes(self) -> int:
        return 0 if self.closed else self._waiting_bytes

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def close(self, reason: str) -> None:
        self._flush()
        self._close(reason, tell=True)

    def abort(self, reason: str) -> None:
        self._close(reason, tell=True)

    def hand_over(self, place: Path) -> None:
        raise AssertionError("a line names no other process in its CONNECT")

    def _close(self, reason: str, *, tell: bool) -> None:
        if self.closed:
            return
        self.session.closing(reason)
        self._shut(reason)
        # Not at once: the session may be in the middle of what made it close.
        self._loop.call_soon(self.session.lost)
        if tell:
            self._ended(reason)
