"""Determines how far an open ledger is confirmed by asking its bookies. Sync, no I/O.

Nothing is fenced: the writer may go on meanwhile.

Source: BookKeeper replication protocol, read last confirmed.
"""

from __future__ import annotations

from magnetar.ledger.quorum.layout import Coverage, QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.status import Status


class LastConfirmed:
    """Collects the answers of the last ensemble's members to a read of their last entry."""

    __slots__ = ("_answered", "_coverage", "_digester", "_layout", "best", "last_confirmed")

    def __init__(self, layout: QuorumLayout, digester: Digester, floor: int) -> None:
        """`floor`: the last entry known to be confirmed, at least the one before the last ensemble."""
        self._layout = layout
        self._digester = digester
        self._coverage = Coverage(layout)
        self._answered: set[int] = set()
        self.last_confirmed = floor
        self.best: LedgerEntry | None = None
        """The entry with the highest last add confirmed."""

    def read(self, index: int, status: Status, entry: bytes | None, blob: bytes | None = None) -> None:
        """The answer of a member; IO_ERROR when there will be none. `blob`: the explicit last add confirmed
        that it stores."""
        self._answered.add(index)
        if blob is not None:
            try:
                self.last_confirmed = max(self.last_confirmed, self._digester.open_lac(blob))
            except DigestMismatchError:  # a member with an invalid answer counts as one without an answer
                return
        if status is Status.OK and (entry is not None or blob is None):
            try:
                opened = self._digester.open(entry or b"", None)
            except DigestMismatchError:  # a member with an invalid answer counts as one without an answer
                return
            if self.best is None or opened.last_add_confirmed > self.best.last_add_confirmed:
                self.best = opened
            self.last_confirmed = max(self.last_confirmed, opened.last_add_confirmed)
        if status.is_certain:
            self._coverage.know(index)

    @property
    def is_known(self) -> bool:
        """Whether no later entry can be confirmed by the silent members alone."""
        return self._coverage.is_reached

    @property
    def is_over(self) -> bool:
        """Whether all members have answered."""
        return self.is_known or len(self._answered) == self._layout.ensemble_size
