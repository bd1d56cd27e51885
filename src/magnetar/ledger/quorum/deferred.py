"""The writer of a ledger whose entries may be acknowledged before they are durable. Sync, no I/O.

What Qa bookies have acknowledged may still be lost with their power. `force` makes it durable on every member
of the ensemble; only then it is confirmed. The ensemble never changes: what a bookie held that is gone was
perhaps nowhere else durable, so a failed bookie is the end of the writer.

Source: BookKeeper replication protocol, deferred sync and force.
"""

from __future__ import annotations

from magnetar.base.ids import LedgerId
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.effects import Advance, Effect, Failure, SendForce
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.wire.bookkeeper.digests import Digester
from magnetar.wire.bookkeeper.status import Status


class DeferredWriter(QuorumWriter):
    """The rules of one ledger. Every method returns what the driver has to do, in order."""

    def __init__(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: int, digester: Digester
    ) -> None:
        super().__init__(ledger_id, metadata, version, digester)
        self.last_acknowledged = -1
        """The last entry that Qa bookies have, with all before it, perhaps in memory only; -1 at first."""
        self._wanted = -1
        """The entry up to which everything is to be made durable."""
        self._forcing: set[int] = set()
        """Members that have not answered a force yet; empty when none is under way."""
        self._target = -1
        """The entry that is durable once all of them have answered."""

    def force(self) -> list[Effect]:
        """Makes durable what was appended so far, as soon as Qa bookies have it; ends with an Advance."""
        self._wanted = self.last_pushed
        return self._begin_forcing()

    def _begin_forcing(self) -> list[Effect]:
        if self.is_over or self._forcing or not self.last_confirmed < self._wanted <= self.last_acknowledged:
            return []
        self._target = self.last_acknowledged
        self._forcing = set(range(self._layout.ensemble_size))
        return [SendForce(bookie, index) for index, bookie in enumerate(self._ensemble)]

    def forced(self, bookie: str, index: int, status: Status) -> list[Effect]:
        """Result of SendForce; IO_ERROR when there will be none."""
        if self.is_over or index not in self._forcing:
            return []
        if status is not Status.OK:
            return self._lose(bookie, index, status)
        self._forcing.discard(index)
        if self._forcing:
            return []
        self._pending.confirm_to(self._target)
        return [Advance(self._target), *self._progress()]

    def _lose(self, bookie: str, index: int, status: Status) -> list[Effect]:
        return self._fail(
            Failure.NOT_ENOUGH_BOOKIES,
            f"{bookie} failed; entries of ledger {self.ledger_id} that it had may be durable nowhere",
        )

    def _progress(self) -> list[Effect]:
        self.last_acknowledged = self._pending.complete_behind(self.last_acknowledged)
        if self.is_closing:
            self._wanted = self.last_pushed
            if not self._pending:
                return self._seal()
        return self._begin_forcing()
