"""Two sockets of which each gets what the other one reads (driver).

All sockets share one read buffer, and what was read is written to the other side at once. When that side does
not take it, the reading stops: a spliced pair holds at most a buffer and a read in each direction.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final, cast

from magnetar.proxy.ports import ProxyPort
from magnetar.runtime.tasks import call_later

_SHARED_BYTES: Final = 256 << 10
"""Bytes of the shared buffer, and so of a read."""
_LAST_WORDS_S: Final = 10.0
"""Seconds for a peer to take the last bytes of a connection that is closed."""


class ReadBuffer:
    """The read buffer of a loop."""

    __slots__ = ("data", "view")

    def __init__(self) -> None:
        self.data = bytearray(_SHARED_BYTES)
        self.view = memoryview(self.data)


class Half(asyncio.BufferedProtocol, ABC):
    """One socket; from `splice` on one half of a pair, which passes on what it reads."""

    transport: asyncio.Transport

    def __init__(self, proxy: ProxyPort, shared: ReadBuffer) -> None:
        self._proxy = proxy
        self._shared = shared
        self._other: Half | None = None
        self._rest = bytearray()
        """What was read and is not handled yet."""
        self.reads = 0
        """Reads that were passed on."""
        self.gone = False
        """Whether the socket is closed, or about to be."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self._proxy.options.buffer_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.view

    def buffer_updated(self, nbytes: int) -> None:
        other = self._other
        if other is None:
            self._rest += self._shared.view[:nbytes]
            self._parse()
            return
        self.reads += 1
        figures = self._proxy.figures
        figures.ops += 1
        figures.bytes += nbytes
        other.transport.write(bytes(self._shared.view[:nbytes]))

    @abstractmethod
    def _parse(self) -> None:
        """Handles what it can of `_rest`."""

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.stop_reading()

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other.go_on_reading()

    def stop_reading(self) -> None:
        """Reads no more for now."""
        if not self.transport.is_closing() and self.transport.is_reading():
            self.transport.pause_reading()

    def go_on_reading(self) -> None:
        """Reads again."""
        if not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()

    def splice(self, other: Half, rest: bytes) -> None:
        """What is read from now on goes to the other one, `rest` first."""
        self._other = other
        self._rest = bytearray()
        if rest:
            other.transport.write(rest)

    def finish(self) -> None:
        """Closes the socket when what was written has left, or after some seconds in any case."""
        if not self.gone:
            self.gone = True
            self.transport.close()
            if self.transport.get_write_buffer_size():
                call_later(_LAST_WORDS_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        other, self._other = self._other, None
        if other is not None:
            other._other = None
            other.finish()
