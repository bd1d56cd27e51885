"""Memory that broker and worker both see: entries are put there by the one and taken by the other.

Through the socket they are copied four times more, half of that by the event loop. One side waits for the
other at any time, so that nothing is overwritten that is still to be read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Final

HANDOVER_BYTES: Final = 9 << 20
"""An answer of 8 MiB to who reads on, and what describes it. What is larger goes through the socket."""


class Handover:
    """The memory, at one of its two ends."""

    def __init__(self, file: int) -> None:
        """`file`: of at least HANDOVER_BYTES; kept open, and closed by `close`. Raises OSError."""
        self.file: Final = file
        self.memory: Final = mmap.mmap(file, HANDOVER_BYTES)

    @classmethod
    def create(cls) -> Handover | None:
        """New memory; None where the system has no files without a name, or no memory for one."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            file = os.memfd_create("magnetar-handover")
        except OSError:
            return None
        try:
            os.truncate(file, HANDOVER_BYTES)
            return cls(file)
        except OSError:
            os.close(file)
            return None

    def put(self, parts: Sequence[bytes | memoryview]) -> int | None:
        """Puts these side by side. How many bytes that are; None when they do not fit."""
        size = sum(map(len, parts))
        if size > HANDOVER_BYTES:
            return None
        at = 0
        for part in parts:
            end = at + len(part)
            self.memory[at:end] = part
            at = end
        return size

    def close(self) -> None:
        """The memory is gone when both ends have closed it."""
        self.memory.close()
        os.close(self.file)
