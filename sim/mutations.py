"""The rules of writing, recovery and serving, each with a way to break it.

A rule is handed in (`rules.py`), or it is one of the simulator's own drivers that breaks it: a disk, a
client. No part of the product is replaced (`tests/simulation/test_replaced_methods.py`).

Three rules are not here, because breaking one of them alone loses nothing: that reads of the last entry
fence, that their answers must cover every set of Qw neighbours, and that only certain answers count there.
The reads of a recovery fence as well, so an entry that they miss can never be confirmed: the first line
holds without the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.known_ledger import KnownLedger, ServingRules
from magnetar.bookie.served import ServedLedger
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import Effect
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.pending import PendingEntries
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.quorum.rules import RecoveryRules, WritingRules
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status
from sim.breaking import Mutation
from sim.clients import ClientNode, Core
from sim.disk import Disk
from sim.rules import RulesInForce

# Writing


class _ConfirmsOneShort(WritingRules):
    def copies_needed(self, layout: QuorumLayout) -> int:
        return layout.ack_quorum - 1


class _PendingWithGaps(PendingEntries):
    __slots__ = ()

    def confirm(self) -> bool:
        done = [e for e in self._entries.values() if e.holders.bit_count() >= self._layout.ack_quorum]
        if not done:
            return False
        last = done[-1]
        self._entries = {key: value for key, value in self._entries.items() if key > last.entry_id}
        self.confirmed, self.confirmed_bytes = last.entry_id, last.length_bytes
        return True


class _ConfirmsOverGaps(WritingRules):
    def pending(self, layout: QuorumLayout) -> PendingEntries:
        return _PendingWithGaps(layout)


class _ConfirmsWhileChanging(WritingRules):
    def may_confirm(self, *, changing: bool) -> bool:
        return True


class _HearsEverybody(WritingRules):
    def hears(self, bookie: str, member: str) -> bool:
        return True


class _KeepsCopies(WritingRules):
    def keeps_copies_of_the_replaced(self) -> bool:
        return True


class _ChangesBehindWhatWasSent(WritingRules):
    def first_of_change(self, confirmed: int, pushed: int, last_first: int) -> int:
        return pushed + 1


class _ChangesAtTheConfirmed(WritingRules):
    def first_of_change(self, confirmed: int, pushed: int, last_first: int) -> int:
        return max(confirmed, last_first)


class _WritesOverARecovery(WritingRules):
    def goes_on_from(self, stored: LedgerMetadata, known: LedgerMetadata) -> LedgerMetadata:
        return stored if stored.state is LedgerState.OPEN else known


def _unknown_is_written(self: ClientNode, core: Core, expected_version: int) -> list[Effect]:
    """A writer is told that its change of the metadata is there."""
    if isinstance(core, QuorumWriter):
        return core.metadata_written(expected_version + 1)
    return core.metadata_conflict()


class _GoesOnDespiteAFence(WritingRules):
    def is_copy(self, status: Status) -> bool:
        return status in (Status.OK, Status.FENCED)


# Recovery


class _ReadsWithoutFence(RecoveryRules):
    def fences_entry_reads(self) -> bool:
        return False


class _ReadsBehindTheConfirmed(RecoveryRules):
    def first_to_read(self, highest_lac: int, last_segment: int) -> int:
        return highest_lac + 1


class _ReadsFromTheSuccessors(RecoveryRules):
    def members_to_read(self, at_start: Sequence[str], now: Sequence[str]) -> Sequence[str]:
        return now


class _TellsAllThatIsConfirmed(RecoveryRules):
    def confirmed_to_tell(self, first_read: int, confirmed: int) -> int:
        return confirmed


class _SilenceIsAbsence(RecoveryRules):
    def is_absence(self, status: Status) -> bool:
        return True


class _OneAbsenceIsEnough(RecoveryRules):
    def absences_needed(self, layout: QuorumLayout) -> int:
        return 1


class _NeedsNoCopies(RecoveryRules):
    def copies_needed(self, layout: QuorumLayout) -> int:
        return 0


class _WritesNothingAgain(_NeedsNoCopies):
    def members_to_write(self, write_set: Iterable[int]) -> Iterable[int]:
        return ()


class _ClosesOnceMore(RecoveryRules):
    def adopts(self, stored: LedgerMetadata) -> bool:
        return False


# Serving


def _durable_at_once(self: Disk, write: Any) -> None:
    self._waiting.append(write)
    if not self._syncing:
        self._sync()
    self._durable([write.ticket])


def _synced_without_a_word(self: Disk, life: int) -> None:
    if life != self._life:
        return
    group, self._syncing = self._syncing, []
    for write in group:
        self._apply(write)
    if self._waiting:
        self._sync()


class _TakesAllBehindAFence(ServingRules):
    def may_add(self, ledger: KnownLedger, run: AddRun) -> bool:
        return True


class _AnswersBeforeTheFence(ServingRules):
    def answers_before(self, ledger: KnownLedger) -> bool:
        return True


class _FencesOnlyTheKnown(ServingRules):
    def fences_unknown(self) -> bool:
        return False


def _fence_forgotten(self: Disk) -> list[ServedLedger]:
    return [ServedLedger(number, ledger.master_key, False) for number, ledger in self._ledgers.items()]


def _damage_is_absence(self: Disk, ledger_id: LedgerId, entry_id: int) -> bytes | None:
    try:
        return _ENTRY(self, ledger_id, entry_id)
    except CorruptDataError:
        return None


_ENTRY: Final = Disk.entry


def _everything_forgotten(self: Disk) -> None:
    self.lose_everything()


LEDGER_MUTATIONS: Final = {
    "ack-quorum": Mutation(
        "an entry is confirmed when Qa bookies have it",
        [(RulesInForce, "writing", _ConfirmsOneShort())],
        found_by=0,
    ),
    "in-order": Mutation(
        "an entry is confirmed after all before it",
        [(RulesInForce, "writing", _ConfirmsOverGaps())],
        found_by=0,
    ),
    "still-while-changing": Mutation(
        "nothing is confirmed while the ensemble changes",
        [(RulesInForce, "writing", _ConfirmsWhileChanging())],
        found_by=88,
    ),
    "members-only": Mutation(
        "the answers of a replaced bookie do not count",
        [(RulesInForce, "writing", _HearsEverybody())],
        found_by=522,
    ),
    "copies-of-the-replaced": Mutation(
        "copies on a bookie that was replaced do not count",
        [(RulesInForce, "writing", _KeepsCopies())],
        found_by=8,
    ),
    "change-begins-behind-confirmed": Mutation(
        "a new ensemble begins behind the last confirmed entry",
        [(RulesInForce, "writing", _ChangesBehindWhatWasSent())],
        found_by=5,
    ),
    "change-leaves-confirmed-alone": Mutation(
        "a new ensemble begins behind the last confirmed entry, not at it",
        [(RulesInForce, "writing", _ChangesAtTheConfirmed())],
        found_by=2,
    ),
    "recovery-wins": Mutation(
        "a writer that finds its ledger in recovery gives up",
        [(RulesInForce, "writing", _WritesOverARecovery())],
        found_by=14,
    ),
    "unknown-outcomes": Mutation(
        "a change of the metadata without an answer is looked up",
        [(ClientNode, "not_written", _unknown_is_written)],
        found_by=28,
    ),
    "fence-is-final": Mutation(
        "a writer that meets a fence gives up",
        [(RulesInForce, "writing", _GoesOnDespiteAFence())],
        found_by=2,
    ),
    "fencing-entry-reads": Mutation(
        "reads of a recovery fence, too",
        [(RulesInForce, "recovery", _ReadsWithoutFence())],
        found_by=34,
    ),
    "floor": Mutation(
        "a recovery reads from its last segment on",
        [(RulesInForce, "recovery", _ReadsBehindTheConfirmed())],
        found_by=433,
    ),
    "snapshot": Mutation(
        "a recovery reads from the ensemble as it was at its start",
        [(RulesInForce, "recovery", _ReadsFromTheSuccessors())],
        found_by=513,
    ),
    "silence-is-not-absence": Mutation(
        "only a certain absence counts as one",
        [(RulesInForce, "recovery", _SilenceIsAbsence())],
        found_by=8,
    ),
    "absence-quorum": Mutation(
        "Qw - Qa + 1 bookies must lack an entry",
        [(RulesInForce, "recovery", _OneAbsenceIsEnough())],
        found_by=0,
    ),
    "written-again": Mutation(
        "what a recovery finds is written again",
        [(RulesInForce, "recovery", _WritesNothingAgain())],
        found_by=1,
    ),
    "written-again-to-the-quorum": Mutation(
        "what a recovery finds is on Qa bookies before it closes",
        [(RulesInForce, "recovery", _NeedsNoCopies())],
        found_by=156,
    ),
    "no-word-for-the-unknown": Mutation(
        "entries that a recovery writes again vouch for none on bookies that only it knows",
        [(RulesInForce, "recovery", _TellsAllThatIsConfirmed())],
        found_by=391,
    ),
    "first-close-wins": Mutation(
        "a recovery adopts the end that another one wrote",
        [(RulesInForce, "recovery", _ClosesOnceMore())],
        found_by=14,
    ),
    "durable-before-answered": Mutation(
        "a bookie answers when an entry is durable",
        [(Disk, "write", _durable_at_once), (Disk, "_synced", _synced_without_a_word)],
        found_by=6,
    ),
    "read-behind-the-fence": Mutation(
        "a bookie reads when its fence is durable",
        [(RulesInForce, "serving", _AnswersBeforeTheFence())],
        found_by=16,
    ),
    "fence-of-the-unknown": Mutation(
        "a bookie fences a ledger that it has not seen",
        [(RulesInForce, "serving", _FencesOnlyTheKnown())],
        found_by=166,
    ),
    "fence-holds": Mutation(
        "a fenced ledger takes no entries from its writer",
        [(RulesInForce, "serving", _TakesAllBehindAFence())],
        found_by=2,
    ),
    "fence-survives": Mutation(
        "a fence survives a restart",
        [(Disk, "stored_ledgers", _fence_forgotten)],
        found_by=291,
    ),
    "damage-is-not-absence": Mutation(
        "a damaged entry is not an absent one",
        [(Disk, "entry", _damage_is_absence)],
        found_by=249,
    ),
    "what-was-synced-stays": Mutation(
        "what was synced survives a crash",
        [(Disk, "crash", _everything_forgotten)],
        found_by=0,
    ),
}
"""By name."""
