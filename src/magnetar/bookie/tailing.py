"""How far ledgers are confirmed, as their entries tell a bookie, and reads that wait for more. Sync, no I/O.

A read waits until the last add confirmed is beyond what its reader knows, the ledger is fenced, or its time
is over; then it is answered with what there is.

Source: BookKeeper protocol, long polls and explicit last add confirmed.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.wire.bookkeeper.requests import Read

_LAC: Final = struct.Struct(">q")
_LAC_AT: Final = 16
"""In the head of an entry, behind the ids of ledger and entry."""
_BLOB_LAC_AT: Final = 8
"""In an explicit last add confirmed, behind the id of the ledger."""

UNKNOWN_LAC: Final = -1


def lac_of_entry(entry: bytes) -> int:
    """The last add confirmed that the writer knew when it sent the entry; -1 of bytes that are none."""
    return int(_LAC.unpack_from(entry, _LAC_AT)[0]) if len(entry) >= _LAC_AT + _LAC.size else UNKNOWN_LAC


def lac_of_blob(blob: bytes) -> int:
    """What an explicit last add confirmed says; -1 of bytes that are none."""
    whole = len(blob) >= _BLOB_LAC_AT + _LAC.size
    return int(_LAC.unpack_from(blob, _BLOB_LAC_AT)[0]) if whole else UNKNOWN_LAC


def previous_of(request: Read) -> int:
    """The last add confirmed that a waiting reader knows."""
    return UNKNOWN_LAC if request.previous_lac is None else request.previous_lac


class LedgerTail:
    """What is known of one ledger's end, and who waits for more of it."""

    __slots__ = ("blob", "lac", "waiting")

    def __init__(self, blob: bytes | None = None) -> None:
        self.blob = blob
        """The explicit last add confirmed, as its writer sealed it."""
        self.lac: int | None = None
        """The highest last add confirmed that was seen; None: nobody has looked yet."""
        self.waiting: list[tuple[object, Read]] = []

    def saw(self, lac: int) -> None:
        """An entry or its writer said so."""
        if self.lac is None or lac > self.lac:
            self.lac = lac

    def ready(self) -> list[tuple[object, Read]]:
        """Who waits no longer, for the ledger is confirmed beyond what they know."""
        lac = UNKNOWN_LAC if self.lac is None else self.lac
        ready = [each for each in self.waiting if lac > previous_of(each[1])]
        if ready:
            self.waiting = [each for each in self.waiting if each not in ready]
        return ready

    def all(self) -> list[tuple[object, Read]]:
        """Everybody who waits, and waits no longer."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def over(self, asker: object, request: Read) -> bool:
        """Whether this read still waited; it does so no longer."""
        for at, (other, read) in enumerate(self.waiting):
            if other is asker and read is request:
                del self.waiting[at]
                return True
        return False
