"""One ledger client's connection to a bookie: bytes to requests, answers to bytes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from magnetar.bookie.network.access import Door
from magnetar.wire.bookkeeper.bookie import BookieParser, encode_response
from magnetar.wire.bookkeeper.requests import Request, StartTls
from magnetar.wire.bookkeeper.responses import Response
from magnetar.wire.frames import FrameError

_log = logging.getLogger("magnetar.bookie.network")

_BUFFER_BYTES: Final = 256 << 10
_FIRST_BYTES: Final = 4 << 10
"""The buffer of a client that has asked for nothing yet."""
_HANDSHAKE_S: Final = 10.0
_JOIN_BELOW_BYTES: Final = 4_096
"""Pieces smaller than this on average are joined before writing; larger ones are written as a vector."""


class Serving(Protocol):
    """What connections hand their requests to."""

    packet_bytes_max: int

    def opened(self, connection: BookieConnection) -> None:
        """A client has connected."""

    def closed(self, connection: BookieConnection) -> None:
        """It has gone."""

    def handle(self, connection: BookieConnection, requests: Sequence[Request]) -> None:
        """Requests in the order in which they came."""


class BookieConnection(asyncio.BufferedProtocol):
    """A socket. Answers of one turn of the loop leave in one write."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._parser = BookieParser(serving.packet_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_FIRST_BYTES)
        self._filled = 0
        self._out: list[bytes] = []
        self._held = 0
        self._securing = False
        """Whether a TLS hand-shake is under way: nothing is read or written beside it."""
        self.door: Door | None = None
        """What the client must pass; None when it has, or need not."""
        self._transport: asyncio.Transport

    # -- asyncio.BufferedProtocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self._transport = cast(asyncio.Transport, transport)
        self._serving.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled == len(self._buffer):
            # Only while nothing is looked at: a hand-shake's last packet had much behind it.
            self._buffer = self._buffer + bytes(self._filled)
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if not self._securing:
            self._look()

    def _look(self) -> None:
        try:
            requests, consumed = self._parser.parse(self._buffer, self._filled)
        except FrameError as error:
            self._handle(cast("list[Request]", error.events))
            _log.warning("%s: connection closed: illegal packet: %s", self.peer, error)
            self._flush()
            self._transport.close()
            return
        rest = self._filled - consumed
        if rest and consumed:
            self._buffer[:rest] = self._buffer[consumed : self._filled]
        self._filled = rest
        wanted = max(self._parser.needed, _BUFFER_BYTES if requests and self.door is None else 0)
        if wanted > len(self._buffer):
            grown = bytearray(wanted)
            grown[:rest] = self._buffer[:rest]
            self._buffer = grown
        if requests:
            self._handle(requests)
        if self._securing and (rest or not isinstance(requests[-1], StartTls)):
            # What came in clear behind the request for TLS may be somebody else's.
            _log.warning("%s: connection closed: unencrypted bytes before TLS", self.peer)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._out.clear()
        self._serving.closed(self)

    def pause_writing(self) -> None:
        # Answers to what would be read could not leave.
        self.hold()

    def resume_writing(self) -> None:
        self.go_on()

    # -- what the bookie does -----------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Address of the client."""
        peer = self._transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)

    def _handle(self, requests: Sequence[Request]) -> None:
        try:
            self._serving.handle(self, requests)
        except Exception:  # noqa: BLE001  # a bug met by one client must not take the bookie down
            _log.exception("%s: a request could not be handled; the connection is dropped", self.peer)
            self._transport.abort()

    def answer(self, response: Response) -> None:
        """Sends an answer at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += encode_response(response)

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

    def hold(self) -> None:
        """Reads no more, until as many calls of `go_on` have come."""
        self._held += 1
        if self._held == 1 and not self._securing and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Takes a `hold` back."""
        self._held -= 1
        if not self._held and not self._securing and not self._transport.is_closing():
            self._transport.resume_reading()

    def end(self) -> None:
        """Drops the connection when what was answered is out."""
        self._flush()
        self._transport.close()

    # -- TLS --------------------------------------------------------------------------------------

    def begin_tls(self) -> None:
        """Sends what was answered in clear, and nothing more before `tls_done`; at once after START_TLS."""
        self._flush()
        self._securing = True
        self._transport.pause_reading()

    async def secure(self, context: ssl.SSLContext) -> bool:
        """The TLS hand-shake; whether it went well. Else the connection is dropped."""
        try:
            transport = await self._loop.start_tls(
                self._transport, self, context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except (OSError, TimeoutError) as error:
            transport, reason = None, str(error)
        else:
            reason = "the client has gone"
        if transport is None:
            _log.warning("%s: TLS handshake failed: %s", self.peer, reason)
            self._transport.abort()
            # A connection that is lost in the middle of the hand-shake is not told so.
            self.connection_lost(None)
            return False
        self._transport = transport
        return True

    @property
    def is_secure(self) -> bool:
        """Whether TLS is up, or on its way."""
        return self._securing or self._transport.get_extra_info("sslcontext") is not None

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's, verified; None without one, and without TLS."""
        return cast("Mapping[str, Any] | None", self._transport.get_extra_info("peercert"))

    def tls_done(self) -> None:
        """Looks at what came behind the hand-shake: it is known now who sent it."""
        self._securing = False
        if self._held:
            self._transport.pause_reading()
        self._flush()
        if self._filled:
            self._look()

    def close(self) -> None:
        """Drops the connection."""
        self._transport.abort()
