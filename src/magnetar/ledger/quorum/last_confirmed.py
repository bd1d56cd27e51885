"""How far an open ledger is confirmed, by asking its bookies. Sync, no I/O.

Nothing is fenced: the writer may go on meanwhile.

Source: BookKeeper replication protocol, read last confirmed.
"""

from __future__ import annotations

from magnetar.ledger.quorum.layout import Coverage, QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.status import Status


class LastConfirmed:
    """Collects what the members of the last ensemble answer to a read of their last entry."""

    __slots__ = ("_answered", "_coverage", "_digester", "_layout", "best", "last_confirmed")

    def __init__(self, layout: QuorumLayout, digester: Digester, floor: int) -> None:
        """`floor`: what is known to be confirmed already, the entry before the last ensemble at least."""
        self._layout = layout
        self._digester = digester
        self._coverage = Coverage(layout)
        self._answered: set[int] = set()
        self.last_confirmed = floor
        self.best: LedgerEntry | None = None
        """The entry that knew of the highest confirmed one."""

    def read(self, index: int, status: Status, entry: bytes | None, blob: bytes | None = None) -> None:
        """A member answered, or will not (IO_ERROR). `blob`: the explicit one that it keeps."""
        self._answered.add(index)
        if blob is not None:
            try:
                self.last_confirmed = max(self.last_confirmed, self._digester.open_lac(blob))
            except DigestMismatchError:  # a member that answers nonsense counts as one that answered nothing
                return
        if status is Status.OK and (entry is not None or blob is None):
            try:
                opened = self._digester.open(entry or b"", None)
            except DigestMismatchError:  # a member that answers nonsense counts as one that answered nothing
                return
            if self.best is None or opened.last_add_confirmed > self.best.last_add_confirmed:
                self.best = opened
            self.last_confirmed = max(self.last_confirmed, opened.last_add_confirmed)
        if status.is_certain:
            self._coverage.know(index)

    @property
    def is_known(self) -> bool:
        """Whether no later entry can be confirmed by those who have not answered alone."""
        return self._coverage.is_reached

    @property
    def is_over(self) -> bool:
        """Whether nobody is left to answer."""
        return self.is_known or len(self._answered) == self._layout.ensemble_size
