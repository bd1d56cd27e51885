"""The rules of auto-recovery on which copies depend (pure).

They are handed to `AutoRecoveryNode` as an object, so that the simulator can hand in broken ones and show
that each is needed (`sim/cluster/mutations.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from magnetar.ledger.autorecovery.fragments import Fragment, Lack, fragments_of, held_by, moved
from magnetar.ledger.autorecovery.schedule import LOOK_AGAIN_S
from magnetar.ledger.ledger_metadata import LedgerMetadata


class RepairRules:
    """What is audited, what counts as a copy, and when a loss is over."""

    __slots__ = ()

    audit_retry_s: float = 1.0
    """Seconds until an audit that failed is made again."""
    look_again_s: float = LOOK_AGAIN_S
    """Seconds from an audit to the second one."""

    def holders(self, metadata: LedgerMetadata, lost: Set[str]) -> frozenset[str]:
        """Those of the lost bookies for which an audit marks a ledger: members of any of its ensembles."""
        return held_by(metadata, lost)

    def fragments(self, metadata: LedgerMetadata) -> list[Fragment]:
        """What is checked one by one. The open end of a ledger is a fragment without an end: it is copied
        after a fence only."""
        return fragments_of(metadata)

    def counts(self, lack: Lack) -> bool:
        """Whether a ledger with this lack lacks copies. Also with one in its open end, whose writer may be
        gone."""
        return True

    def believes_damaged(self) -> bool:
        """Whether a copy counts whose digest is not the writer's."""
        return False

    def entries_to_copy(
        self, fragment: Fragment, index: int, missing: Mapping[int, Sequence[int]]
    ) -> Iterable[int]:
        """The entries that a bookie gets before it counts as the member at `index`: those that are known to
        be `missing` there; without such a list all."""
        return missing.get(index) or fragment.entries(index)

    def passes_fences(self) -> bool:
        """Whether copies are added as a recovery adds entries: most ledgers with lost copies are closed, and
        their bookies have fences."""
        return True

    def answers_needed(self, count: int) -> int:
        """How many of `count` copies a bookie must have acknowledged before they are some."""
        return count

    def moved(
        self, metadata: LedgerMetadata, first: int, places: Mapping[int, tuple[str, str]]
    ) -> LedgerMetadata | None:
        """The metadata with other members of the ensemble that begins at `first`, None where that is not this
        process's to change: see `fragments.moved`."""
        return moved(metadata, first, places)

    def is_whole(self, lacks: Sequence[Lack]) -> bool:
        """Whether the mark of a ledger goes, by what a check after the repair has found: the mark is all that
        tells other workers of the loss."""
        return not lacks


REPAIR_RULES: Final = RepairRules()
