"""Counts the requests to a bookie for `/metrics`. Sync, no I/O.

A bookie without `/metrics` counts nothing. The names of the counters are in `metrics.py`.
"""

from __future__ import annotations

from magnetar.bookie.served import Write
from magnetar.wire.bookkeeper.responses import Added, BatchReadDone, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status


class Traffic:
    """Adds and reads since the start. A vector of adds is counted in one step."""

    __slots__ = ("adds", "adds_failed", "read_bytes", "reads", "reads_failed", "write_bytes")

    def __init__(self) -> None:
        self.adds = 0
        """Entries added with success."""
        self.adds_failed = 0
        self.reads = 0
        """Reads answered with entries; a batch counts as one."""
        self.reads_failed = 0
        self.write_bytes = 0
        """Bytes of the added entries, heads and digests included."""
        self.read_bytes = 0

    def wrote(self, write: Write) -> None:
        """The rules accepted entries, or a fence."""
        self.write_bytes += sum(map(len, write.entries))

    def answered(self, response: Response) -> None:
        """A response is sent."""
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
