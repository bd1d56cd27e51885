"""A bookie's knowledge of one ledger besides its entries, and what its fence keeps out. Sync, no I/O."""

from __future__ import annotations

from typing import Final

from magnetar.bookie.served import ServedLedger, Wait
from magnetar.bookie.tailing import LedgerTail
from magnetar.wire.bookkeeper.requests import AddRun


class KnownLedger:
    """Master key, fence and last add confirmed of a ledger."""

    __slots__ = ("fence_durable", "fenced", "limbo", "master_key", "tail", "waiting")

    def __init__(
        self,
        master_key: bytes,
        *,
        fenced: bool = False,
        limbo: bool = False,
        lac_blob: bytes | None = None,
    ) -> None:
        self.master_key = master_key
        self.fenced = fenced
        self.fence_durable = fenced
        self.limbo = limbo
        self.tail = LedgerTail(lac_blob)
        self.waiting: dict[Wait, None] = {}
        """Fencing reads that wait until the fence is durable."""

    @classmethod
    def of(cls, stored: ServedLedger) -> KnownLedger:
        """From the durable state at the bookie's start."""
        return cls(
            stored.master_key,
            fenced=stored.fenced or stored.limbo,
            limbo=stored.limbo,
            lac_blob=stored.lac_blob,
        )

    def fence_over(self) -> list[Wait]:
        """Removes and returns the reads that wait for the fence."""
        waiting, self.waiting = self.waiting, {}
        return list(waiting)

    def accept_key(self, master_key: bytes) -> bool:
        """Returns whether this is the master key; a ledger in limbo adopts the first key it sees."""
        if self.limbo and not self.master_key:
            self.master_key = master_key
        return self.master_key == master_key


class ServingRules:
    """What a fence keeps out; the simulator hands in a broken one (`sim/mutations.py`)."""

    __slots__ = ()

    def may_add(self, ledger: KnownLedger, run: AddRun) -> bool:
        """Whether a ledger takes these entries: behind a fence only those of a recovery."""
        return not ledger.fenced or run.recovery

    def answers_before(self, ledger: KnownLedger) -> bool:
        """Whether a read that fences is answered without waiting: when the fence is durable. Otherwise it
        could be lost, and with it what the answer says: that no writer adds the entry any more."""
        return ledger.fence_durable

    def fences_unknown(self) -> bool:
        """Whether a ledger is fenced before its first entry: the writer's add may still be on its way to this
        bookie."""
        return True


SERVING_RULES: Final = ServingRules()
