"""Memory and copies of many megabytes that keep no other thread waiting.

An object of 64 MiB keeps the interpreter's lock, and with it the event loop, three times for 20 to 60 ms:
when a bytearray is set to zeros, when bytes are copied, and when the system gets the memory back.
"""

from __future__ import annotations

import _thread
import io
import mmap
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Self

LARGE_BYTES: Final = 1 << 20
"""Smaller objects take a millisecond at most; so does a piece of a larger copy."""


def pieces_of(data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Views of `data` in its order, each small enough for one step."""
    with memoryview(data) as view:
        for at in range(0, len(view), LARGE_BYTES):
            yield view[at : at + LARGE_BYTES]


def as_bytes(data: bytearray | memoryview) -> bytes:
    """The bytes of `data`.

    One copy of 64 MiB keeps the lock for 30 to 100 ms, also in a thread, and the event loop waits for it.
    Between two pieces of a copy other threads get the lock.
    """
    if len(data) <= LARGE_BYTES:
        return bytes(data)
    # It gives away its buffer when that is exactly full: there is no second copy.
    made = io.BytesIO()
    for piece in pieces_of(data):
        made.write(piece)
    return made.getvalue()


class LargeBuffer(mmap.mmap):
    """Anonymous memory of a fixed size in bytes, at least 1; zeros at first.

    The system gives its pages at their first use, by C code that has released the lock, and a thread returns
    them.

    It lives as long as a memoryview of it. The last one may be dropped anywhere, also on the event loop.
    """

    def __new__(cls, size: int) -> Self:
        # Python's default is memory to share with other processes, whose pages cost several times as much.
        return super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def __del__(self) -> None:
        if self.closed:
            return
        if sys.is_finalizing():
            _return(self)
        else:
            # A `threading.Thread` takes a lock that the code which was interrupted by this call may hold.
            _thread.start_new_thread(_return, (self,))


def _return(buffer: LargeBuffer) -> None:
    # A view in a circle with the buffer is still there when the collector calls: it drops both later.
    with suppress(BufferError):
        # Only `close` releases the interpreter's lock while the system takes the pages back.
        buffer.close()


def joined(parts: Iterable[bytes | memoryview]) -> bytes | memoryview:
    """The parts in one piece; from LARGE_BYTES on it is a view of a LargeBuffer."""
    kept = list(parts)
    size = sum(len(part) for part in kept)
    if size < LARGE_BYTES:
        return b"".join(kept)
    buffer, at = LargeBuffer(size), 0
    for part in kept:
        for piece in pieces_of(part):
            buffer[at : at + len(piece)] = piece
            at += len(piece)
    return memoryview(buffer)
