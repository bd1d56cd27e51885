"""The driver of one client connection: moves bytes between a socket and a `Session`.

Reading: all connections of a loop share one buffer, because a read and its parsing happen in one go. What
is left of an incomplete frame is kept by its connection and put in front of the next read; a frame
larger than half the shared buffer gets a buffer of its own, so that it is copied once.

Writing: whatever a tick produced for this client leaves in one write at the tick's end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from magnetar.auth.identity import shown_role
from magnetar.broker.handlers import handshake
from magnetar.broker.service import Broker
from magnetar.broker.session.answering import owner_of
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.broker.session.session import Session
from magnetar.broker.session.shared_buffer import SHARED_BYTES, SharedBuffer
from magnetar.broker.session.slices import sliced
from magnetar.runtime.descriptors import DATA_BYTES_MAX, hand_over
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import SendRun
from magnetar.wire.frames import NO_REQUEST, FrameError, frame_bytes_max
from magnetar.wire.server import ServerParser

__all__ = ["Connection", "SharedBuffer"]

_log = logging.getLogger("magnetar.broker.connection")

_JOIN_BELOW_BYTES: Final = 4_096
"""Chunks smaller than this on average are joined before writing; larger ones are written as a vector."""
_TURN: Final = "its part of a turn"
_HANDED_OVER: Final = "it goes to another process"
"""Reasons for which a connection is not read."""
_HAND_OVERS_MAX: Final = 256
"""Connections of a listener that wait for other processes. Each has another descriptor meanwhile, also for
clients without credentials, while a process hangs."""


class Connection(asyncio.BufferedProtocol):
    """One socket. See the module's text."""

    __slots__ = (
        "_broker",
        "_closing",
        "_filled",
        "_first",
        "_flush_scheduled",
        "_large",
        "_left",
        "_loop",
        "_more",
        "_parser",
        "_peer",
        "_quotas",
        "_rests",
        "_session",
        "_shared",
        "_slices",
        "_tail",
        "_transport",
        "_turns",
    )

    def __init__(self, broker: Broker, shared: SharedBuffer, first: bytes = b"") -> None:
        """`first`: what another process read from the socket before it handed it over."""
        self._broker = broker
        self._first = first
        """All that was read from a client whose CONNECT is not answered."""
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._parser = ServerParser(frame_bytes_max(broker.config.message_bytes_max))
        self._turns, self._quotas = broker.turns, broker.quotas
        self._tail = self._left = b""
        self._slices: Iterator[list[object]] = iter(())
        self._more: list[object] | None = None
        """Events that were read, for a later turn; `_slices` yields those behind. None: there are none."""
        self._large: bytearray | None = None
        self._filled = 0
        self._flush_scheduled = False
        self._closing = False
        self._rests = False
        """Whether its role has used more than it may."""
        self._peer = "?"
        self._transport: asyncio.Transport
        self._session: Session

    # -- asyncio.BufferedProtocol ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._broker.config.connection_output_bytes_max)
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        self._peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._session = Session(
            self._broker,
            self,
            peer=self._peer,
            local_host=_host(local[0]),
            port=local[1],
            certificate_role=shown_role(transport.get_extra_info),
        )
        handshake.arrive(self._session)
        if self._first:
            self._shared.data[: len(self._first)] = self._first
            self.buffer_updated(len(self._first))

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        tail = self._tail
        if not tail:
            return self._shared.view
        self._shared.data[: len(tail)] = tail
        return self._shared.view[len(tail) :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None:
            self._filled += nbytes
            if self._filled < len(self._large):
                return
            large, self._large = self._large, None
            self._parse(large, len(large))
        else:
            self._parse(self._shared.data, len(self._tail) + nbytes)
        self._write_out()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._left, self._more = b"", None
        self._broker.alarms.discard(self)
        self._turns.forget(owner_of(self._session), self)
        self._broker.farewells.lost(self._session)

    def pause_writing(self) -> None:
        # Answers to what would be read could not leave: a peer that does not read is not read either.
        self._session.transport_writable = False
        self._session.pause_reading()

    def resume_writing(self) -> None:
        self._session.transport_writable = True
        self._session.resume_reading()
        self._session.pump()

    # -- reading -----------------------------------------------------------------------------------

    def _parse(self, buffer: bytearray | bytes, size: int) -> None:
        parser, timed = self._parser, self._quotas.timed
        if self._broker.siblings is not None:
            # No frame is taken off before the CONNECT, so this is everything. A token is not kept for longer.
            kept = 0 if self._session.connected else min(size, DATA_BYTES_MAX + 1)
            self._first = bytes(memoryview(buffer)[:kept])
        begun_ms = self._quotas.now_ms() if timed else None
        try:
            events, consumed = parser.parse(buffer, size, self._turns.per_read)
        except FrameError as error:
            self._tail = b""
            # Its first turn: ids that are dropped from a list are sent again by the client.
            self._slices = sliced(error.events)
            self._guarded_handle(self._next_slice() or ())
            self._more = None
            self.close(f"illegal frame: {error}")
            return
        if consumed == size:
            self._tail = b""
        elif parser.stopped:
            self._tail = b""
            self._left = bytes(memoryview(buffer)[consumed:size])
        else:
            self._keep(buffer, consumed, size)
        if len(events) == 1 and type(events[0]) is SendRun:
            # The usual read, and nothing that could be sliced.
            self._guarded_handle(events)
        elif events:
            self._slices = sliced(events)
            self._guarded_handle(self._next_slice() or ())
            self._more = self._next_slice()
        if parser.commands or timed:
            self._count(parser.commands, begun_ms)

    @property
    def _waits(self) -> bool:
        """Whether something that was read waits for a later turn."""
        return self._more is not None or bool(self._left)

    def _next_slice(self) -> list[object] | None:
        """What the next turn handles of what was read; None: that was all, or the rest is not a legal
        frame."""
        try:
            return next(self._slices, None)
        except FrameError as error:
            self.close(f"illegal frame: {error}")
            return None

    def _count(self, commands: int, begun_ms: float | None) -> None:
        """A read was handled: the connection rests if its role used too much, and waits for its next turn if
        that was enough commands."""
        turns = self._turns
        if commands:
            turns.handled(commands)
        rest_ms = self._quotas.count(owner_of(self._session), commands, begun_ms)
        if rest_ms and not self._closing:
            self._session.throttle(_TURN)
            self._rest(rest_ms)
        elif commands and (self._waits or turns.spent) and not self._closing:
            # Also within a read of the loop, which would go on with this socket else.
            self._session.throttle(_TURN)
            turns.wait(owner_of(self._session), self)

    def _rest(self, ms: int) -> None:
        self._rests = True
        self._broker.alarms.after(self, ms, self._rested)

    def _rested(self) -> None:
        """Its role may go on, unless others of its connections used that."""
        if self._closing:
            return
        owner = owner_of(self._session)
        if rest_ms := self._quotas.count(owner, 0):
            self._rest(rest_ms)
            return
        self._rests = False
        self._turns.wait(owner, self)

    def go_on(self) -> None:
        """Its turn: the next of its commands, or the next read."""
        if self._more is not None:
            more, self._more = self._more, None
            if not self._closing:
                begun_ms = self._quotas.now_ms() if self._quotas.timed else None
                self._guarded_handle(more)
                if not self._closing:
                    self._more = self._next_slice()
                self._write_out()
                self._quotas.count(owner_of(self._session), 0, begun_ms)
                self._turns.wait(owner_of(self._session), self)
            return
        if self._left and self._session.requests.crowded:
            # As bytes they take a tenth of the memory of requests. `resume_reading` goes on.
            self._session.unthrottle(_TURN)
            return
        left, self._left = self._left, b""
        if left and not self._closing:
            self._parse(left, len(left))
            self._write_out()
        if not (self._waits or self._rests):
            self._session.unthrottle(_TURN)

    def _keep(self, buffer: bytearray | bytes, start: int, end: int) -> None:
        """Keeps an incomplete frame for the next read."""
        needed = self._parser.needed
        session = self._session
        if not session.connected:
            # A client that has not authenticated gets no memory by announcing a size, or by being many.
            if needed > CONNECT_BYTES_MAX:
                self.close(f"a frame of {needed} bytes before CONNECT was answered")
                return
            if not self._broker.greetings.keep(session, end - start):
                self.close("half a CONNECT, and too much is kept of those of others")
                return
        if needed <= SHARED_BYTES // 2:
            self._tail = bytes(memoryview(buffer)[start:end])
            return
        self._large = bytearray(needed)
        self._filled = end - start
        self._large[: self._filled] = memoryview(buffer)[start:end]
        self._tail = b""

    def _guarded_handle(self, events: Sequence[object]) -> None:
        try:
            self._session.handle(events)
        except Exception:  # noqa: BLE001  # a bug met by one client must not take the broker down
            _log.exception("%s: handling its commands failed; the connection is dropped", self._peer)
            self.abort("internal error")

    # -- what a session asks of its driver -----------------------------------------------------------

    def flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._shared.write_soon(self)

    def write_out(self) -> None:
        """The tick that `flush_soon` was called in has ended."""
        self._flush_scheduled = False
        self._write_out()

    def _write_out(self) -> None:
        session = self._session
        size = session.out_bytes
        if not size:
            return
        out, session.out, session.out_bytes = session.out, [], 0
        if not self._transport.is_closing():
            if size < _JOIN_BELOW_BYTES * len(out):
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        session.wrote(size)
        if session.starved and session.transport_writable:
            self._loop.call_soon(session.pump)

    def unsent_bytes(self) -> int:
        return 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        if not self._transport.is_closing() and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._waits and not self._closing:
            # What was read before comes first.
            self._session.throttle(_TURN)
            self._turns.wait(owner_of(self._session), self)
        elif not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            level = logging.INFO if self._broker.draining else logging.WARNING
            _log.log(level, "%s: connection closed: %s", self._peer, reason)
            self._session.closing(reason)
            self._write_out()
            self._transport.close()

    def abort(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            _log.info("%s: connection dropped: %s", self._peer, reason)
            self._session.closing(reason)
            self._transport.abort()

    def hand_over(self, place: Path) -> None:
        first, self._first = self._first, b""
        plain = self._transport.get_extra_info("sslcontext") is None
        if not plain or len(first) > DATA_BYTES_MAX:
            self.close("a CONNECT with TLS, or with commands behind it, cannot go to another process")
            return
        if self._shared.handing_over >= _HAND_OVERS_MAX:
            self._not_taken(place, "as many others wait for it as may")
            return
        self._session.throttle(_HANDED_OVER)
        self._shared.handing_over += 1
        self._broker.tasks.spawn(self._hand_over(place, first))

    async def _hand_over(self, place: Path, first: bytes) -> None:
        try:
            # The transport closes its own descriptor only: what the other process has goes on.
            await hand_over(place, self._descriptor, first)
        except OSError as error:
            # The process was killed, and is being replaced: the client looks its topic up again.
            self._not_taken(place, str(error) or "it hangs")
            return
        finally:
            self._shared.handing_over -= 1
        if not self._closing:
            self._closing = True
            _log.debug("%s: connection handed over to %s", self._peer, place.name)
            self._session.closing("handed over")
            self._transport.abort()

    def _descriptor(self) -> int:
        if self._closing:
            raise ConnectionAbortedError("the client is gone")
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

    def _not_taken(self, place: Path, why: str) -> None:
        if self._closing:
            return
        _log.warning("%s: the process at %s takes no connection: %s", self._peer, place.name, why)
        answer = "the broker is restarting; look the topic up again"
        self._session.reply(commands.error(NO_REQUEST, pb.ServiceNotReady, answer))
        self.close("its broker process is gone")


def _host(address: str) -> str:
    """An address in the form of a URL."""
    return f"[{address}]" if ":" in address else address
