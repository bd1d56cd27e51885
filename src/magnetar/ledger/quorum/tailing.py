"""Waits for an open ledger to grow, at all its bookies at once. Sync, no I/O.

Each member of the last ensemble answers when it has seen a later last-add-confirmed, when the ledger is
fenced, or when the time is up; the first that knows more is enough. Its answer may bring the next entry.

Source: BookKeeper protocol, reads that wait (long poll) and the entry that comes with them.
"""

from __future__ import annotations

from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.status import Status


class TailPoll:
    """One round of waiting."""

    __slots__ = ("_answered", "_digester", "_layout", "_previous", "entry", "last_confirmed")

    def __init__(self, layout: QuorumLayout, digester: Digester, previous: int) -> None:
        """`previous`: the last entry that is known to be confirmed."""
        self._layout = layout
        self._digester = digester
        self._previous = previous
        self._answered: set[int] = set()
        self.last_confirmed = previous
        self.entry: LedgerEntry | None = None
        """The entry after `previous`, if an answer brought it."""

    def answered(self, index: int, status: Status, lac_max: int | None, entry: bytes | None) -> None:
        """The answer of a member; IO_ERROR when there will be none."""
        self._answered.add(index)
        if status is not Status.OK:
            return
        if lac_max is not None:
            self.last_confirmed = max(self.last_confirmed, lac_max)
        if entry is not None and self.last_confirmed > self._previous:
            try:
                self.entry = self._digester.open(entry, self._previous + 1)
            except DigestMismatchError:
                # It is read again from a member with a good copy.
                return

    @property
    def is_over(self) -> bool:
        """Whether there is more, or all members have answered."""
        return self.last_confirmed > self._previous or len(self._answered) == self._layout.ensemble_size
