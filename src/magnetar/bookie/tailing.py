"""How far ledgers are confirmed according to their entries, and reads that wait for more. Sync, no I/O.

A read waits until the last add confirmed exceeds the one its reader knows, the ledger is fenced, or its time
is over; then it is answered with the present state.

Source: BookKeeper protocol, long polls and explicit last add confirmed.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.bookie.served import Wait
from magnetar.wire.bookkeeper.requests import Read

_LAC: Final = struct.Struct(">q")
_LAC_AT: Final = 16
"""Offset in the head of an entry, after the ids of ledger and entry."""
_BLOB_LAC_AT: Final = 8
"""Offset in an explicit last add confirmed, after the id of the ledger."""

UNKNOWN_LAC: Final = -1


def lac_of_entry(entry: bytes) -> int:
    """The last add confirmed in an entry's head; -1 for bytes that are not an entry."""
    return int(_LAC.unpack_from(entry, _LAC_AT)[0]) if len(entry) >= _LAC_AT + _LAC.size else UNKNOWN_LAC


def lac_of_blob(blob: bytes) -> int:
    """The last add confirmed in an explicit one; -1 for bytes that are none."""
    whole = len(blob) >= _BLOB_LAC_AT + _LAC.size
    return int(_LAC.unpack_from(blob, _BLOB_LAC_AT)[0]) if whole else UNKNOWN_LAC


def previous_of(request: Read) -> int:
    """The last add confirmed that a waiting reader knows."""
    return UNKNOWN_LAC if request.previous_lac is None else request.previous_lac


class LedgerTail:
    """The confirmed end of one ledger, and the reads that wait for more."""

    __slots__ = ("blob", "lac", "waiting")

    def __init__(self, blob: bytes | None = None) -> None:
        self.blob = blob
        """The explicit last add confirmed with the writer's digest; None without one."""
        self.lac: int | None = None
        """The highest last add confirmed that was seen; None until the first read of it."""
        self.waiting: dict[Wait, None] = {}

    def saw(self, lac: int) -> None:
        """Records a last add confirmed of an entry or its writer."""
        if self.lac is None or lac > self.lac:
            self.lac = lac

    def ready(self) -> list[Wait]:
        """Removes and returns the reads that wait for less than the present mark."""
        lac = UNKNOWN_LAC if self.lac is None else self.lac
        ready = [wait for wait in self.waiting if lac > previous_of(wait.request)]
        for wait in ready:
            del self.waiting[wait]
        return ready

    def all(self) -> list[Wait]:
        """Removes and returns all waiting reads."""
        waiting, self.waiting = self.waiting, {}
        return list(waiting)
