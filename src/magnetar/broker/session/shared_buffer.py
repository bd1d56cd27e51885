"""What the connections of a loop share: one buffer to read into, and one write at the end of a tick."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

SHARED_BYTES: Final = 256 << 10
"""Bytes of the buffer that connections share, and so of a read."""


class WritingConnection(Protocol):
    """A connection with something to write."""

    def write_out(self) -> None:
        """The tick that it was asked for in has ended."""


class SharedBuffer:
    """What the connections of a loop share: the read buffer, and the write at the end of a tick."""

    __slots__ = ("_loop", "_unwritten", "data", "handing_over", "view")

    def __init__(self) -> None:
        self.data = bytearray(SHARED_BYTES)
        self.view = memoryview(self.data)
        # Asking for it anew costs a system call: CPython looks at the process's id each time.
        self._loop: asyncio.AbstractEventLoop | None = None
        self.handing_over = 0
        """Connections that wait until another process takes them."""
        # Each connection is in it once at most.
        self._unwritten: deque[WritingConnection] = deque()

    def write_soon(self, connection: WritingConnection) -> None:
        """Calls the connection's `write_out` at the end of this tick."""
        if not self._unwritten:
            # One call for all of them: a commit may answer a thousand.
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._write_out)
        self._unwritten.append(connection)

    def _write_out(self) -> None:
        unwritten = self._unwritten
        self._unwritten = deque()
        try:
            while unwritten:
                unwritten.popleft().write_out()
        finally:
            # After the error of one of them.
            for connection in unwritten:
                self.write_soon(connection)
