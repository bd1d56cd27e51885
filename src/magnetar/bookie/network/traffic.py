"""What clients asked of a bookie, counted for `/metrics`. Sync, no I/O.

A bookie whose metrics nobody can read counts nothing. Names of what is counted are in `metrics.py`.
"""

from __future__ import annotations

from magnetar.bookie.served import Write
from magnetar.wire.bookkeeper.responses import Added, BatchReadDone, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status


class Traffic:
    """Adds and reads since the start. A vector of adds costs as much as one."""

    __slots__ = ("adds", "adds_failed", "read_bytes", "reads", "reads_failed", "write_bytes")

    def __init__(self) -> None:
        self.adds = 0
        """Entries whose add was answered well."""
        self.adds_failed = 0
        self.reads = 0
        """Reads that were answered with entries; a batch is one."""
        self.reads_failed = 0
        self.write_bytes = 0
        """Of entries that were taken, their heads and digests as well."""
        self.read_bytes = 0

    def wrote(self, write: Write) -> None:
        """The rules let entries in, or a fence."""
        self.write_bytes += sum(map(len, write.entries))

    def answered(self, response: Response) -> None:
        """An answer goes out."""
        if isinstance(response, Added):
            if response.status is Status.OK:
                self.adds += len(response.entry_ids)
            else:
                self.adds_failed += len(response.entry_ids)
        elif isinstance(response, ReadDone | BatchReadDone):
            if response.status is not Status.OK:
                self.reads_failed += 1
                return
            self.reads += 1
            if isinstance(response, BatchReadDone):
                self.read_bytes += sum(map(len, response.entries))
            elif response.entry is not None:
                self.read_bytes += len(response.entry)
