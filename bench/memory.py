"""The page cache as on a machine that has been running for a while.

A virtual machine gives memory that it does not use back to its host. The first write to such a page makes
the host fetch it again: measured on one, about 2 s of system time a GB, charged to the process that touched
it, where copying into a page in use takes 0.2. A server that has been up for an hour has filled its memory
with page cache, and new data goes into recycled pages; a machine that has just started a benchmark has not.
`PageCache.fill` makes the second like the first: it reads a sparse file, whose pages the kernel keeps, until
hardly any memory is free. They are clean and unused, so the kernel takes them first when a broker needs some.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

FREE_SHARE: Final = 0.03
"""Share of the memory that stays free: above the kernel's own reserves, below what a case writes."""
PIECE_BYTES: Final = 1 << 20
STRETCH_BYTES: Final = 1 << 30
PROBE_BYTES: Final = 2 << 30


def _meminfo(field: str) -> int:
    """Bytes of one field of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0


def write_cpu_s_per_gb(folder: Path) -> float:
    """System time of copying PROBE_BYTES of data into the page cache of a new file, synced as a log does."""
    piece = os.urandom(PIECE_BYTES)
    spent = 0.0
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(PROBE_BYTES // PIECE_BYTES):
            before = time.thread_time()
            os.write(file.fileno(), piece)
            spent += time.thread_time() - before
            os.fdatasync(file.fileno())
    return spent / PROBE_BYTES * 1e9


class PageCache:
    """A sparse file whose cached pages occupy what would else be free memory. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        """`folder`: on a file system that keeps a page cache; the file takes no space there."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._size = _meminfo("MemTotal")
        os.ftruncate(self._file.fileno(), self._size)
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def fill(self) -> None:
        """Read on, round the file, until hardly anything is free or the kernel keeps no more.

        Takes seconds for each GB that was free.
        """
        fd, piece = self._file.fileno(), bytearray(PIECE_BYTES)
        least = int(_meminfo("MemTotal") * FREE_SHARE)
        free = _meminfo("MemFree")
        while free > least:
            for _ in range(STRETCH_BYTES // PIECE_BYTES):
                os.preadv(fd, [piece], self._next)
                self._next = (self._next + PIECE_BYTES) % self._size
            before, free = free, _meminfo("MemFree")
            if before - free < STRETCH_BYTES // 10:
                return
