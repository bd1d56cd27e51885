"""How many reads wait, and whose they are. Sync, no I/O.

A client chooses how long its read waits, so only their number bounds their memory. Each takes some 650 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar.bookie.served import Output, Wait, Waited

OF_ONE_MAX: Final = 1_024
"""Reads of a client that wait, of each kind."""
OF_ALL_MAX: Final = 16_384
"""The same of all clients together."""


class WaitingReads:
    """The reads of one kind that wait."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self._of: dict[object, dict[Wait, dict[Wait, None]]] = {}
        """By client, and the line of its ledger in which each waits."""
        self.total = 0

    def has_place(self, asker: object) -> bool:
        """Whether one more read of a client may wait."""
        return self.total < OF_ALL_MAX and len(self._of.get(asker, ())) < OF_ONE_MAX

    def make_place(self, asker: object) -> list[Output] | None:
        """Frees a place for one more read of a client; None: it has its share already.

        When all are taken, the client with most loses its oldest, which is answered as if its time were over.
        """
        own = len(self._of.get(asker, ()))
        if own >= OF_ONE_MAX:
            return None
        if self.total < OF_ALL_MAX:
            return []
        most = max(self._of.values(), key=len)
        # A client with one less would only change places with it, again and again.
        return None if own + 1 >= len(most) else self.over(next(iter(most)))

    def begin(self, wait: Wait, line: dict[Wait, None]) -> None:
        """A read waits in the line of its ledger."""
        line[wait] = None
        self._of.setdefault(wait.asker, {})[wait] = line
        self.total += 1

    def end(self, waits: Sequence[Wait]) -> list[Output]:
        """These reads have left their line and wait no more."""
        for wait in waits:
            of_asker = self._of[wait.asker]
            del of_asker[wait]
            if not of_asker:
                del self._of[wait.asker]
        self.total -= len(waits)
        return [Waited(wait) for wait in waits]

    def over(self, wait: Wait) -> list[Output]:
        """A read waits no more, if it still does."""
        line = self._of.get(wait.asker, {}).get(wait)
        if line is None:
            return []
        del line[wait]
        return self.end([wait])

    def gone(self, asker: object) -> list[Wait]:
        """Removes and returns the reads of a client."""
        lines = self._of.pop(asker, {})
        for wait, line in lines.items():
            del line[wait]
        self.total -= len(lines)
        return list(lines)
