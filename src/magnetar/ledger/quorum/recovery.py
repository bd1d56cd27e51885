"""Closes a ledger whose writer is gone, at an end that later answers cannot refute. Sync, no I/O.

    MARKING      metadata from OPEN to IN_RECOVERY
    ASKING       every member of the last ensemble is fenced and asked for its last entry, until enough have
                 answered that nothing confirmed can hide with the others
    READING      entry after entry behind the highest last-add-confirmed that was seen, each fenced with its
                 read and added again, until one is certainly nowhere: that is the end
    MEASURING    the entry at the end is read for the length of the ledger, when none was added again
    SEALING      one write: CLOSED, with the end and the ensembles that came about

What a reader may assume is generous, what ends the ledger is strict: one good copy proves an entry; its
absence needs Qw - Qa + 1 members that certainly lack it, and whatever is neither (a timeout, an I/O error, a
wrong digest) proves nothing.

Recovery reads go to the ensemble as it was at the start, because a bookie that took a place since has nothing
yet; they fence, because otherwise an absence that was counted could turn into a copy afterwards. Several
recoveries may run at once: the first write of CLOSED wins, the others adopt it.

Source: BookKeeper replication protocol, recovery; its TLA+ findings on fencing reads and on the first entry
to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from magnetar.base.ids import LedgerId
from magnetar.base.machine import Machine
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import (
    Closed,
    Effect,
    Failed,
    Failure,
    ReadMetadata,
    SendAdds,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.layout import Coverage, QuorumLayout
from magnetar.ledger.quorum.pending import PendingEntries, PendingEntry
from magnetar.ledger.quorum.recovery_phases import TRANSITIONS, Phase, Votes
from magnetar.ledger.quorum.replacing import Replacing
from magnetar.ledger.quorum.rules import RECOVERY_RULES, RecoveryRules
from magnetar.wire.bookkeeper.digests import Digester, DigestMismatchError, LedgerEntry
from magnetar.wire.bookkeeper.requests import LAST_ENTRY
from magnetar.wire.bookkeeper.status import Status


class LedgerRecovery:
    """Recovers one ledger, from metadata as just read. Methods return what the driver has to do, in order."""

    def __init__(
        self,
        ledger_id: LedgerId,
        metadata: LedgerMetadata,
        version: int,
        digester: Digester,
        *,
        rules: RecoveryRules = RECOVERY_RULES,
    ) -> None:
        self.ledger_id = ledger_id
        self._metadata = metadata
        self._version = version
        self._digester = digester
        self._rules = rules
        self._phase = Machine(f"recovery of ledger {ledger_id}", TRANSITIONS, Phase.MARKING)
        self._written: LedgerMetadata | None = None
        self._snapshot = metadata.ensembles[-1][1]
        """The last ensemble at the start of the recovery: fences and reads go there."""
        self._layout = QuorumLayout(len(self._snapshot), metadata.write_quorum, metadata.ack_quorum)
        self._ensemble = list(self._snapshot)
        """The current ensemble for adds: changes when members fail."""
        self._ensembles = metadata.ensembles
        self._last_segment = metadata.ensembles[-1][0]
        """First entry of the last ensemble at the start of the recovery."""
        self._first_read = 0
        self._coverage = Coverage(self._layout)
        self._asked: set[int] = set()
        self._highest_lac = -1
        self._highest_entry = -1
        self._pending = PendingEntries(self._layout)
        self._votes: dict[int, Votes] = {}
        self._end: int | None = None
        """The first entry that certainly does not exist; None while unknown."""
        self._replacing = Replacing()

    @property
    def ensemble(self) -> Sequence[str]:
        """The current ensemble for adds."""
        return self._ensemble

    @property
    def is_over(self) -> bool:
        """Whether the recovery is over."""
        return self._phase.now is Phase.OVER

    def start(self) -> list[Effect]:
        """The first thing to do; once."""
        return self._begin(self._metadata, self._version)

    def _begin(self, metadata: LedgerMetadata, version: int) -> list[Effect]:
        self._metadata, self._version = metadata, version
        if metadata.state is LedgerState.CLOSED:
            return self._adopt(metadata)
        self._ensembles = metadata.ensembles
        self._last_segment, self._snapshot = metadata.ensembles[-1]
        self._ensemble = list(self._snapshot)
        if metadata.state is LedgerState.IN_RECOVERY:
            return self._ask()
        return self._write(metadata.recovering())

    def _write(self, metadata: LedgerMetadata) -> list[Effect]:
        self._written = metadata
        return [WriteMetadata(metadata, self._version)]

    def metadata_written(self, version: int) -> list[Effect]:
        """Result of WriteMetadata: stored with this version."""
        if self.is_over:
            return []
        assert self._written is not None
        self._metadata, self._version, self._written = self._written, version, None
        if self._metadata.state is LedgerState.CLOSED:
            return self._adopt(self._metadata)
        return self._ask()

    def metadata_conflict(self) -> list[Effect]:
        """Result of WriteMetadata: not written, or unknown."""
        return [] if self.is_over else [ReadMetadata()]

    def metadata_read(self, metadata: LedgerMetadata | None, version: int) -> list[Effect]:
        """Result of ReadMetadata; None: the ledger was deleted."""
        if self.is_over:
            return []
        if metadata is None:
            return self._fail(Failure.GONE, f"ledger {self.ledger_id} was deleted")
        if metadata == self._written:
            return self.metadata_written(version)
        if self._rules.adopts(metadata):
            return self._adopt(metadata)
        if self._phase.now is Phase.MARKING:
            return self._begin(metadata, version)
        assert self._phase.now is Phase.SEALING, "metadata is read after a write only"
        # Copies of older entries were moved meanwhile; the last ensemble is this recovery's or another's.
        self._metadata, self._version = metadata, version
        return self._seal()

    def _adopt(self, metadata: LedgerMetadata) -> list[Effect]:
        self._phase.go(Phase.OVER, "it is closed")
        self._metadata = metadata
        assert metadata.end is not None, "a closed ledger has an end"
        return [Closed(metadata.end)]

    # Ask the members how far the ledger reaches

    def _ask(self) -> list[Effect]:
        self._phase.go(Phase.ASKING, "the metadata says that it is in recovery")
        fence = self._rules.fences_last_reads()
        return [
            SendRead(bookie, index, LAST_ENTRY, fence=fence) for index, bookie in enumerate(self._snapshot)
        ]

    def read(
        self, bookie: str, index: int, entry_id: int, status: Status, entry: bytes | None
    ) -> list[Effect]:
        """Result of SendRead; IO_ERROR when there will be none."""
        if self.is_over:
            return []
        if status is Status.UNAUTHORIZED:
            return self._fail(
                Failure.UNAUTHORIZED, f"{bookie} refuses the password of ledger {self.ledger_id}"
            )
        opened = None
        if status is Status.OK:
            try:
                asked = None if entry_id == LAST_ENTRY else entry_id
                opened = self._digester.open(entry or b"", asked)
            except DigestMismatchError:
                status = Status.IO_ERROR
        if entry_id == LAST_ENTRY:
            return self._last_read(index, status, opened) if self._phase.now is Phase.ASKING else []
        return self._entry_read(index, entry_id, status, opened)

    def _last_read(self, index: int, status: Status, entry: LedgerEntry | None) -> list[Effect]:
        self._asked.add(index)
        if entry is not None:
            self._highest_lac = max(self._highest_lac, entry.last_add_confirmed)
            self._highest_entry = max(self._highest_entry, entry.entry_id)
        if self._rules.is_known(status):
            self._coverage.know(index)
        if self._coverage.is_reached:
            return self._begin_reading()
        if len(self._asked) == self._layout.ensemble_size:
            return self._fail(
                Failure.UNREADABLE,
                f"of the {self._layout.ensemble_size} bookies with the end of ledger {self.ledger_id} "
                "too few answered for certain",
            )
        return []

    # Entries after the last one that is known to be confirmed

    def _begin_reading(self) -> list[Effect]:
        assert self._coverage.is_reached, "bookies that did not answer may have a confirmed entry"
        self._phase.go(Phase.READING, "enough members answered")
        self._first_read = self._rules.first_to_read(self._highest_lac, self._last_segment)
        assert self._first_read >= self._last_segment, "committed entries would be added again"
        copies_needed = self._rules.copies_needed(self._layout)
        self._pending = PendingEntries(self._layout, self._first_read - 1, copies_needed=copies_needed)
        return self._read_next()

    def _read_next(self) -> list[Effect]:
        return self._read_entry(self._pending.last + 1, fence=self._rules.fences_entry_reads())

    def _read_entry(self, entry_id: int, *, fence: bool) -> list[Effect]:
        self._votes[entry_id] = Votes()
        members = self._rules.members_to_read(self._members_at_start(entry_id), self._ensemble)
        return [
            SendRead(members[index], index, entry_id, fence=fence)
            for index in self._layout.write_set(entry_id)
        ]

    def _members_at_start(self, entry_id: int) -> tuple[str, ...]:
        """The members that hold the entry, as they were at the start of the recovery."""
        if entry_id >= self._last_segment:
            return self._snapshot
        return next(members for first, members in reversed(self._ensembles) if first <= entry_id)

    def _entry_read(
        self, index: int, entry_id: int, status: Status, entry: LedgerEntry | None
    ) -> list[Effect]:
        votes = self._votes.get(entry_id)
        if votes is None or votes.found is not None:
            return []
        votes.answered.add(index)
        if entry is not None:
            votes.found = entry
            del self._votes[entry_id]
            return self._measured(entry) if self._phase.now is Phase.MEASURING else self._add(entry)
        if self._rules.is_absence(status):
            votes.absent.add(index)
        if self._phase.now is Phase.READING and len(votes.absent) >= self._rules.absences_needed(
            self._layout
        ):
            self._end = entry_id
            del self._votes[entry_id]
            return self._progress()
        if len(votes.answered) == self._layout.write_quorum:
            return self._fail(
                Failure.UNREADABLE,
                f"entry {entry_id} of ledger {self.ledger_id} could not be read, "
                "nor is it certain that there is none",
            )
        return []

    def _add(self, entry: LedgerEntry) -> list[Effect]:
        """Adds the entry to all members of the current ensemble, and continues with the next one."""
        assert entry.entry_id == self._pending.last + 1, "entries are added again in order, without a gap"
        told = self._rules.confirmed_to_tell(self._first_read, self._pending.confirmed)
        head = self._digester.seal(entry.entry_id, told, entry.length_bytes, entry.payload)
        pending = PendingEntry(entry.entry_id, head + entry.payload, entry.length_bytes)
        self._pending.add(pending)
        effects: list[Effect] = [
            SendAdds(self._ensemble[index], index, [entry.entry_id], [pending.entry], recovery=True)
            for index in self._rules.members_to_write(self._layout.write_set(entry.entry_id))
            if not self._replacing.is_out(index)
        ]
        return effects + self._read_next()

    def added(self, bookie: str, index: int, entry_ids: Iterable[int], status: Status) -> list[Effect]:
        """A bookie answered for these entries; IO_ERROR when there will be no answer."""
        if self.is_over or self._ensemble[index] != bookie:
            return []
        if status is Status.OK:
            self._pending.held(index, entry_ids)
            return self._progress()
        if status is Status.UNAUTHORIZED:
            return self._fail(
                Failure.UNAUTHORIZED, f"{bookie} refuses the password of ledger {self.ledger_id}"
            )
        self._replacing.fail(index, bookie)
        return [*self._replacing.begin(self._ensemble)]

    def _progress(self) -> list[Effect]:
        if not self._replacing.leaving:
            self._pending.confirm()
        return self._finish()

    @property
    def can_do_without(self) -> bool:
        """Whether entries reach Qa bookies without the failed ones: when these cannot be replaced, the ledger
        is closed all the same."""
        return self._layout.can_confirm_without({*self._replacing.leaving, *self._replacing.absent})

    # Ensemble change: in memory; the metadata gets it with the end

    def bookies_chosen(self, chosen: Mapping[int, str]) -> list[Effect]:
        """Result of ChooseBookies: the successors by index; places without one are left out."""
        if self.is_over:
            return []
        if not chosen and self.can_do_without:
            self._replacing.do_without()
            return [*self._progress(), *self._replacing.begin(self._ensemble)]
        if not chosen:
            lost = ", ".join(sorted(self._replacing.leaving.values()))
            return self._fail(Failure.NOT_ENOUGH_BOOKIES, f"no bookie can replace {lost}")
        staying = self._replacing.narrow(chosen)
        for index, bookie in chosen.items():
            self._ensemble[index] = bookie
            self._pending.forget(index)
        self._replacing.end(self._ensemble)
        first = self._pending.confirmed + 1
        kept = tuple(part for part in self._ensembles if part[0] < first)
        self._ensembles = (*kept, (first, tuple(self._ensemble)))
        effects: list[Effect] = []
        for index in (*chosen, *staying):
            entry_ids, entries = self._pending.missing_at(index)
            if entry_ids:
                effects.append(SendAdds(self._ensemble[index], index, entry_ids, entries, recovery=True))
        return effects + self._progress() + [*self._replacing.begin(self._ensemble)]

    # The end

    def _finish(self) -> list[Effect]:
        if self._phase.now is not Phase.READING or self._end is None or not self._is_settled():
            return []
        last = self._end - 1
        if last >= self._first_read or last < 0:
            return self._measured(None)
        # No entry was added again: the entry at the end tells the length of the ledger.
        self._phase.go(Phase.MEASURING, "nothing was added again")
        return self._read_entry(last, fence=False)

    def _is_settled(self) -> bool:
        return not self._pending and not self._replacing.leaving

    def _measured(self, entry: LedgerEntry | None) -> list[Effect]:
        if entry is not None:
            assert entry.entry_id == self._pending.confirmed, "another entry is measured than the last one"
            self._pending.confirmed_bytes = entry.length_bytes
        assert self._is_settled(), "entries behind the end are under way"
        self._phase.go(Phase.SEALING, "the end is certain")
        return self._seal()

    def _seal(self) -> list[Effect]:
        # Also when the metadata was written again after a change: a member may have failed meanwhile, whose
        # entries Qa others hold.
        assert not self._pending, "entries behind the end are not confirmed"
        assert self._end == self._pending.confirmed + 1, "the ledger would end elsewhere than it was found to"
        end = LedgerEnd(self._pending.confirmed, self._pending.confirmed_bytes)
        return self._write(self._merged().closed(end))

    def _merged(self) -> LedgerMetadata:
        """The present metadata, with the ensembles of this recovery after the part that it did not touch."""
        first = self._last_segment
        older = tuple(part for part in self._metadata.ensembles if part[0] < first)
        return self._metadata.with_ensembles(
            (*older, *(part for part in self._ensembles if part[0] >= first))
        )

    def _fail(self, failure: Failure, reason: str) -> list[Effect]:
        self._phase.go(Phase.OVER, reason)
        return [Failed(failure, reason)]

    def check(self) -> None:
        """Asserts the invariants."""
        phase = self._phase.now
        self._pending.check()
        assert len(self._ensemble) == self._layout.ensemble_size, "a member was added or lost"
        firsts = [first for first, _ in self._ensembles]
        assert firsts == sorted(set(firsts)), "ensembles are out of order"
        assert self._highest_lac <= self._highest_entry or self._highest_entry < 0, "confirmed, and not there"
        reads = phase in (Phase.READING, Phase.MEASURING, Phase.SEALING)
        assert reads or phase is Phase.OVER or self._end is None, "an end before anything was read"
        if reads:
            assert self._pending.confirmed >= self._first_read - 1, "an entry is counted twice"
            assert self._end is None or self._end >= self._first_read, "the end is before what is confirmed"
        assert phase not in (Phase.MEASURING, Phase.SEALING) or self._end is not None, "an end without one"
        for votes in self._votes.values():
            assert votes.absent <= votes.answered, "a member that did not answer lacks the entry"
