"""Shared memory through which broker and worker pass entries to each other.

Through the socket, entries would be copied four more times, twice by the event loop. At any time one side
waits for the other, so entries that are not read yet are never overwritten.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Final

HANDOVER_BYTES: Final = 9 << 20
"""Bytes: enough for an answer of 8 MiB with its header. Larger answers are sent through the socket."""


class Handover:
    """One end of the shared memory."""

    def __init__(self, file: int) -> None:
        """`file`: descriptor of a file of at least HANDOVER_BYTES; `close` closes it. Raises OSError."""
        self.file: Final = file
        self.memory: Final = mmap.mmap(file, HANDOVER_BYTES)

    @classmethod
    def create(cls) -> Handover | None:
        """Makes new memory; None when the system has no anonymous files or not enough memory."""
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
        """Writes these parts one after the other; returns their bytes, or None when they do not fit."""
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
        """Closes this end; the system frees the memory when both ends are closed."""
        self.memory.close()
        os.close(self.file)
