"""One ledger client's connection to a bookie: bytes to requests, responses to bytes.

A read is parsed and handled in pieces: each connection has a share of a turn of the loop
(`base/loop_shares.py`), and addresses take turns. What does not fit stays in the buffer as bytes, which
take less memory than requests, and the connection is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from magnetar.base.loop_shares import LoopShares
from magnetar.bookie.network.access import Door
from magnetar.wire.bookkeeper.bookie import BYTES_OF_WORK, BookieParser, encode_response
from magnetar.wire.bookkeeper.requests import Request, StartTls
from magnetar.wire.bookkeeper.responses import Response
from magnetar.wire.frames import FrameError

_log = logging.getLogger("magnetar.bookie.network")

_BUFFER_BYTES: Final = 256 << 10
_READ_BYTES: Final = 1 << 20
"""Most bytes of a read of a large packet, when the turn of the loop has time."""
_LATE_READ_BYTES: Final = 64 << 10
"""Most bytes of a read when the turn is used up: each connection may read once more in it."""
_FIRST_BYTES: Final = 4 << 10
"""Bytes of the first buffer, for a client that has sent no request yet."""
OUTSIDE_BYTES_MAX: Final = 64 << 10
"""The largest request of a client that has not authenticated; a whole one is kept until it is complete. The
requests of a handshake are much smaller."""
_HANDSHAKE_S: Final = 10.0
_JOIN_BELOW_BYTES: Final = 4_096
"""Pieces below this mean size are joined before writing; larger ones are written as a vector."""


class Serving(Protocol):
    """Receives the requests of connections."""

    packet_bytes_max: int
    turns: LoopShares
    """The shares of a turn of the loop that clients have."""

    def opened(self, connection: BookieConnection) -> None:
        """A client has connected."""

    def closed(self, connection: BookieConnection) -> None:
        """A client has disconnected."""

    def handle(self, connection: BookieConnection, requests: Sequence[Request]) -> None:
        """Handles requests in their order."""

    def go_on(self, connection: BookieConnection) -> None:
        """Handles a piece of the requests that were put off, if it may now."""

    def answering(self, connection: BookieConnection, size: int) -> None:
        """An answer of so many bytes is under way to a client."""

    def taken(self, connection: BookieConnection) -> None:
        """The client has taken all its answers but some kilobytes."""


class BookieConnection(asyncio.BufferedProtocol):
    """A socket. The responses of one turn of the loop leave in one write."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._parser = BookieParser(serving.packet_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_FIRST_BYTES)
        self._begin = 0
        """Where the bytes in the buffer begin that are not parsed yet."""
        self._filled = 0
        self._counted = 0
        """Work for which the beginning of an incomplete packet has counted."""
        self._out: list[bytes] = []
        self._held = 0
        self._stopped = False
        """Whether the buffer may have complete packets: more than fitted into a share."""
        self._rests = False
        """Whether it is held until its next turn of the loop."""
        self._owner = ""
        self._is_stuck = False
        """Whether the client does not take its answers."""
        self.is_lost = False
        """Whether the client has gone."""
        self._securing = False
        """Whether a TLS handshake is under way: nothing else is read or written meanwhile."""
        self.door: Door | None = None
        """The client's authentication; None when it has passed, or when none is demanded."""
        self._transport: asyncio.Transport

    # -- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._transport = cast(asyncio.Transport, transport)
        self._owner = self.peer.rpartition(":")[0]
        self._serving.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled == len(self._buffer):
            # Only while no bytes are being parsed: the last packet of a handshake may be followed by many.
            self._buffer = self._buffer + bytes(self._filled)
        # A buffer that was made for a large packet takes no more small ones than another.
        end, most = max(self._parser.needed, _BUFFER_BYTES), _READ_BYTES
        if end > _BUFFER_BYTES and self._serving.turns.spent:
            most = _LATE_READ_BYTES
        if end <= self._filled:
            end = len(self._buffer)
        return memoryview(self._buffer)[self._filled : min(end, self._filled + most)]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if not self._securing:
            self._look()

    def _look(self) -> None:
        """Handles what fits into its share of this turn of the loop."""
        parser, turns = self._parser, self._serving.turns
        self._stopped = False
        try:
            with memoryview(self._buffer)[self._begin : self._filled] as waiting:
                requests, consumed = parser.parse(waiting, len(waiting), turns.per_read)
        except FrameError as error:
            self.handle(cast("list[Request]", error.events))
            _log.warning("%s: connection closed: illegal packet: %s", self.peer, error)
            self._flush()
            self._transport.close()
            return
        if self.door is not None and parser.needed > OUTSIDE_BYTES_MAX:
            _log.warning(
                "%s: connection closed: packet of %d bytes, %d are allowed before authentication",
                self.peer,
                parser.needed,
                OUTSIDE_BYTES_MAX,
            )
            self._transport.abort()
            return
        self._begin += consumed
        self._stopped = parser.stopped
        if not self._stopped:
            self._make_room(requests)
        # To copy a large packet takes time too, before it is there as a whole.
        incomplete = 0 if self._stopped else (self._filled - self._begin) // BYTES_OF_WORK
        work, self._counted = parser.work + incomplete - self._counted, incomplete
        if not requests:
            if work > 0:
                turns.handled(work)
                if turns.spent:
                    self._rest()
                    turns.read_again(self)
            return
        turns.handled(max(1, work))
        self.handle(requests)
        if self._stopped:
            self._rest()
            self.wait_turn()
        elif turns.spent:
            # Also within a read of the loop, which would go on with this socket else.
            self._rest()
            turns.read_again(self)

    def _make_room(self, requests: Sequence[Request]) -> None:
        """Moves the beginning of a packet to the front of a buffer that is large enough for all of it."""
        begin, parser = self._begin, self._parser
        rest = self._filled - begin
        if rest and begin:
            self._buffer[:rest] = self._buffer[begin : self._filled]
        self._begin, self._filled = 0, rest
        wanted = max(parser.needed, _BUFFER_BYTES if requests and self.door is None else 0)
        if wanted > len(self._buffer):
            grown = bytearray(wanted)
            grown[:rest] = self._buffer[:rest]
            self._buffer = grown

    def _rest(self) -> None:
        """Is not read before its next turn."""
        if not self._rests:
            self._rests = True
            self.hold()

    def go_on(self) -> None:
        """Its turn: a piece of the requests that were put off, and of its buffer; then it is read again."""
        if self.is_lost:
            return
        self._serving.go_on(self)
        if self._rests and self._stopped and self._held == 1 and not self._securing:
            self._look()
        if self._rests and not (self._stopped and self._held == 1):
            self._rests = False
            self.release()

    def wait_turn(self) -> None:
        """Calls `go_on` in one of the next turns of the loop."""
        self._serving.turns.wait(self._owner, self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._stopped = False
        self._serving.turns.forget(self._owner, self)
        self._out.clear()
        self._serving.closed(self)

    def pause_writing(self) -> None:
        # Responses to further requests could not be sent.
        self._is_stuck = True
        self.hold()

    def resume_writing(self) -> None:
        self._is_stuck = False
        self._serving.taken(self)
        self.release()

    # -- called by the bookie -----------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Address of the client."""
        peer = self._transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)

    def handle(self, requests: Sequence[Request]) -> None:
        """Lets the bookie handle requests of this client; ends the connection when it fails at it."""
        was_securing = self._securing
        try:
            self._serving.handle(self, requests)
        except Exception:  # noqa: BLE001  # a bug met by one client must not take the bookie down
            _log.exception("%s: a request could not be handled; the connection is dropped", self.peer)
            self._transport.abort()
            return
        if (
            self._securing
            and not was_securing
            and (
                self._filled > self._begin
                or sum(isinstance(each, StartTls) for each in requests) > 1
                or not isinstance(requests[-1], StartTls)
            )
        ):
            # Bytes in clear after START_TLS may come from an attacker, also before a second one.
            _log.warning("%s: connection closed: unencrypted bytes before TLS", self.peer)
            self._transport.abort()

    def answer(self, response: Response) -> None:
        """Sends a response at the end of this turn of the loop."""
        if self.is_lost:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        pieces = encode_response(response)
        self._out += pieces
        self._serving.answering(self, sum(map(len, pieces)))

    def _flush(self) -> None:
        if self._securing:
            return
        out, self._out = self._out, []
        if not out or self._transport.is_closing():
            return
        if sum(map(len, out)) < _JOIN_BELOW_BYTES * len(out):
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if not self._is_stuck:
            self._serving.taken(self)

    def hold(self) -> None:
        """Stops reading until `release` was called as often as this."""
        self._held += 1
        if self._held == 1 and not self._securing and not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self) -> None:
        """Ends one `hold`."""
        self._held -= 1
        if self._held or self._securing or self._transport.is_closing():
            return
        if self._stopped:
            # What was read before comes first.
            self._rest()
            self.wait_turn()
        else:
            self._transport.resume_reading()

    def end(self) -> None:
        """Closes the connection once the responses are sent."""
        self._flush()
        self._transport.close()

    # -- TLS --------------------------------------------------------------------------------------

    def begin_tls(self) -> None:
        """Sends the responses so far in clear, and nothing more before `tls_done`; to be called right after
        START_TLS."""
        self._flush()
        self._securing = True
        self._transport.pause_reading()

    async def secure(self, context: ssl.SSLContext) -> bool:
        """Does the TLS handshake; returns whether it succeeded. Otherwise the connection is closed."""
        transport, reason = None, "the client has gone"
        # The loop would wait without end for the handshake of a connection that is lost before it begins.
        if not self._transport.is_closing():
            try:
                transport = await self._loop.start_tls(
                    self._transport, self, context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
                )
            except (OSError, TimeoutError) as error:
                reason = str(error)
        # The loop takes a handshake whose connection is closed without an error for one that succeeded.
        if transport is None or transport.is_closing():
            _log.warning("%s: TLS handshake failed: %s", self.peer, reason)
            self._transport.abort()
            # The loop does not report such an end: the connection would keep its place and 256 KiB for ever.
            self.connection_lost(None)
            return False
        self._transport = transport
        return True

    @property
    def is_secure(self) -> bool:
        """Whether TLS is established or being established."""
        return self._securing or self._transport.get_extra_info("sslcontext") is not None

    @property
    def certificate(self) -> Mapping[str, object] | None:
        """The client's verified certificate; None without one, and without TLS."""
        return cast("Mapping[str, object] | None", self._transport.get_extra_info("peercert"))

    def tls_done(self) -> None:
        """Parses the bytes that followed the handshake: the client is authenticated now."""
        self._securing = False
        if self._held:
            self._transport.pause_reading()
        self._flush()
        if self._filled > self._begin:
            if self._held:
                self._stopped = True
            else:
                self._look()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.abort()
