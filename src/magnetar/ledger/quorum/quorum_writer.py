"""The writer of a ledger over several bookies: sends, counts copies, replaces bookies, closes. Sync, no I/O.

States: OPEN takes entries. While an ensemble change is under way nothing is confirmed, for the new ensemble
begins behind the last confirmed entry. CLOSING waits until everything is confirmed. CLOSED and FAILED are
final.

An entry counts as confirmed when Qa members of the *current* ensemble have it: what a bookie held that was
replaced does not count any more, and what one answers that is not in its place is not heard.

Source: BookKeeper replication protocol: writes, ensemble change, close.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, unique

from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerClosedError, LedgerEnd
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.effects import (
    Advance,
    Closed,
    Effect,
    Failed,
    Failure,
    ReadMetadata,
    SendAdds,
    WriteMetadata,
)
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.pending import PendingEntry
from magnetar.ledger.quorum.replacing import Replacing
from magnetar.ledger.quorum.rules import WRITING_RULES, WritingRules
from magnetar.wire.bookkeeper.digests import Digester
from magnetar.wire.bookkeeper.status import Status


@unique
class _State(Enum):
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class QuorumWriter:
    """The rules for the writer of one ledger. Every method returns what the driver has to do, in order."""

    def __init__(
        self,
        ledger_id: LedgerId,
        metadata: LedgerMetadata,
        version: int,
        digester: Digester,
        *,
        delay_change: bool = False,
        rules: WritingRules = WRITING_RULES,
    ) -> None:
        """`metadata`: as this client created it, in state OPEN; `version`: of its node.

        `delay_change`: failed members are replaced only when the others no longer suffice, or when one of
        them is read-only; until then the writer goes on without them and tries them again.
        """
        self.ledger_id = ledger_id
        self._metadata = metadata
        self._version = version
        self._digester = digester
        self._rules = rules
        self._layout = QuorumLayout(
            len(metadata.ensembles[-1][1]), metadata.write_quorum, metadata.ack_quorum
        )
        self._ensemble = list(metadata.ensembles[-1][1])
        self._pending = rules.pending(self._layout)
        self._length_bytes = 0
        self.last_told = -1
        """The last add confirmed in the last appended entry; -1 before."""
        self._delay_change = delay_change
        self._state = _State.OPEN
        self._replacing = Replacing()
        self._staying: list[int] = []
        """Failed members without a successor in the change under way."""
        self._written: LedgerMetadata | None = None
        """The metadata that was sent to the store and is not answered yet."""

    @property
    def last_confirmed(self) -> int:
        """The last add confirmed; -1 when there is none."""
        return self._pending.confirmed

    @property
    def confirmed_bytes(self) -> int:
        """Payload bytes up to and including the last confirmed entry."""
        return self._pending.confirmed_bytes

    @property
    def pending_bytes(self) -> int:
        """Payload bytes of appended entries that are not confirmed."""
        return self._length_bytes - self._pending.confirmed_bytes

    @property
    def last_pushed(self) -> int:
        """The last appended entry; -1 when there is none."""
        return self._pending.last

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata that this writer uses."""
        return self._metadata

    @property
    def ensemble(self) -> Sequence[str]:
        """The current ensemble for adds."""
        return self._ensemble

    @property
    def is_over(self) -> bool:
        """Whether the writer is over."""
        return self._state in (_State.CLOSED, _State.FAILED)

    @property
    def is_closing(self) -> bool:
        """Whether appends are refused, and the ledger is closed once everything is confirmed."""
        return self._state is _State.CLOSING

    def append(self, payloads: Sequence[bytes]) -> list[Effect]:
        """Appends entries. Raises LedgerClosedError when the writer is closing or over."""
        if self._state is not _State.OPEN:
            raise LedgerClosedError(f"ledger {self.ledger_id} takes no more entries: {self._state.value}")
        first = self.last_pushed + 1
        confirmed = self.last_told = self.last_confirmed
        entries, lengths = self._digester.seal_all(first, confirmed, self._length_bytes, payloads)
        added = list(map(PendingEntry, range(first, first + len(entries)), entries, lengths))
        if added:
            self._pending.add_all(added)
            self._length_bytes = lengths[-1]
        return self._send(added)

    def _send(self, added: Sequence[PendingEntry]) -> list[Effect]:
        layout = self._layout
        effects: list[Effect] = []
        # When every member gets every entry, all get the same lists.
        ids, entries = [entry.entry_id for entry in added], [entry.entry for entry in added]
        striped = layout.write_quorum < layout.ensemble_size
        for index, bookie in enumerate(self._ensemble):
            if self._replacing.is_out(index):
                continue
            if striped:
                mine = [entry for entry in added if layout.holds(index, entry.entry_id)]
                ids, entries = [entry.entry_id for entry in mine], [entry.entry for entry in mine]
            if ids:
                effects.append(SendAdds(bookie, index, ids, entries))
        return effects

    def added(self, bookie: str, index: int, entry_ids: Iterable[int], status: Status) -> list[Effect]:
        """A bookie answered for these entries; IO_ERROR when there will be no answer."""
        if self.is_over or not self._rules.hears(bookie, self._ensemble[index]):
            return []
        if self._rules.is_copy(status):
            self._pending.held(index, entry_ids)
            return self._progress()
        if status is Status.FENCED:
            return self._fail(Failure.FENCED, f"{bookie} has a fence on ledger {self.ledger_id}")
        if status is Status.UNAUTHORIZED:
            return self._fail(
                Failure.UNAUTHORIZED, f"{bookie} refuses the password of ledger {self.ledger_id}"
            )
        return self._lose(bookie, index, status)

    def _lose(self, bookie: str, index: int, status: Status) -> list[Effect]:
        """A member has failed."""
        replacing = self._replacing
        if replacing.absent.get(index) == bookie:
            return []
        if self._delay_change and not replacing.leaving:
            if status is not Status.READ_ONLY and self._layout.can_confirm_without(
                {*replacing.absent, index}
            ):
                replacing.spare(index, bookie)
                return []
            replacing.lose_patience()
        replacing.fail(index, bookie)
        return self._change_ensemble()

    def _progress(self) -> list[Effect]:
        """Confirms what can be confirmed, unless the ensemble is changing."""
        effects: list[Effect] = []
        if self._rules.may_confirm(changing=bool(self._replacing.leaving)) and self._pending.confirm():
            effects.append(Advance(self._pending.confirmed))
        if self.is_closing and not self._replacing.leaving and not self._pending:
            effects += self._seal()
        return effects

    # Ensemble change

    def _change_ensemble(self) -> list[Effect]:
        return [*self._replacing.begin(self._ensemble)] if self._written is None else []

    def bookies_chosen(self, chosen: Mapping[int, str]) -> list[Effect]:
        """Result of ChooseBookies: the successors by index, which may be the former members after a restart;
        places without one are left out."""
        if self.is_over:
            return []
        if not chosen:
            if self.can_do_without:
                self._replacing.do_without()
                return self._progress() + self._change_ensemble()
            lost = ", ".join(sorted(self._replacing.leaving.values()))
            return self._fail(Failure.NOT_ENOUGH_BOOKIES, f"no bookie can replace {lost}")
        self._staying = self._replacing.narrow(chosen)
        self._staying += [at for at, bookie in chosen.items() if bookie == self._ensemble[at]]
        members = [chosen.get(at, member) for at, member in enumerate(self._ensemble)]
        # The metadata is right already when all of them are back.
        return self._adopt_ensemble() if members == self._ensemble else self._write_ensemble(members)

    @property
    def can_do_without(self) -> bool:
        """Whether entries can be confirmed without the failed members."""
        return self._layout.can_confirm_without({*self._replacing.leaving, *self._replacing.absent})

    @property
    def is_short(self) -> bool:
        """Whether members are missing; `take_back` tries them again."""
        return bool(self._replacing.absent) and not self.is_over

    def take_back(self) -> list[Effect]:
        """Missing members get the unconfirmed entries, and later ones."""
        if self.is_over or self._replacing.leaving:
            return []
        effects: list[Effect] = []
        for index, bookie in self._replacing.take_back().items():
            entry_ids, entries = self._pending.missing_at(index)
            if entry_ids:
                effects.append(SendAdds(bookie, index, entry_ids, entries))
        return effects

    def _write_ensemble(self, members: Sequence[str]) -> list[Effect]:
        first = self._rules.first_of_change(
            self.last_confirmed, self.last_pushed, self._metadata.ensembles[-1][0]
        )
        return self._write(self._metadata.with_ensemble(first, tuple(members)))

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
            self._state = _State.CLOSED
            assert self._metadata.end is not None
            return [Closed(self._metadata.end)]
        return self._adopt_ensemble()

    def _adopt_ensemble(self) -> list[Effect]:
        """The new ensemble counts from here on: its new members get all unconfirmed entries."""
        effects: list[Effect] = []
        members = self._metadata.ensembles[-1][1]
        for index, bookie in enumerate(members):
            if bookie != self._ensemble[index]:
                self._ensemble[index] = bookie
                if not self._rules.keeps_copies_of_the_replaced():
                    self._pending.forget(index)
            elif index not in self._staying:
                continue
            entry_ids, entries = self._pending.missing_at(index)
            if entry_ids:
                effects.append(SendAdds(bookie, index, entry_ids, entries))
        self._replacing.end(self._ensemble)
        return effects + self._progress() + self._change_ensemble()

    def metadata_conflict(self) -> list[Effect]:
        """Result of WriteMetadata: not written, or unknown."""
        return [] if self.is_over else [ReadMetadata()]

    def metadata_read(self, metadata: LedgerMetadata | None, version: int) -> list[Effect]:
        """Result of ReadMetadata; None: the ledger was deleted."""
        if self.is_over:
            return []
        wanted = self._written
        assert wanted is not None
        if metadata is None:
            return self._fail(Failure.GONE, f"ledger {self.ledger_id} was deleted")
        if metadata == wanted:  # It was written, only its answer was lost.
            return self.metadata_written(version)
        if wanted.end is not None and metadata.end == wanted.end:
            # Another client recovered the ledger and found all of it: the same end, perhaps on other bookies.
            self._written = metadata
            return self.metadata_written(version)
        basis = self._rules.goes_on_from(metadata, self._metadata)
        if basis is None:
            return self._lost(metadata)
        # Another process moved copies of older entries: the wanted change is still to be made, on top of
        # that.
        self._metadata, self._version = basis, version
        if wanted.state is LedgerState.CLOSED:
            return self._seal()
        return self._write_ensemble(wanted.ensembles[-1][1])

    def _lost(self, metadata: LedgerMetadata) -> list[Effect]:
        what = "is being recovered" if metadata.state is LedgerState.IN_RECOVERY else "was closed"
        return self._fail(Failure.FENCED, f"ledger {self.ledger_id} {what} by another client")

    # The end

    def close(self) -> list[Effect]:
        """Refuses appends, and closes the ledger once everything is confirmed."""
        if self._state is not _State.OPEN:
            return []
        self._state = _State.CLOSING
        return self._progress()

    def _seal(self) -> list[Effect]:
        return self._write(self._metadata.closed(self._end()))

    def _end(self) -> LedgerEnd:
        return LedgerEnd(self._pending.confirmed, self._pending.confirmed_bytes)

    def give_up(self, reason: str) -> list[Effect]:
        """Ends the writer at once: unconfirmed entries may be kept or not."""
        return [] if self.is_over else self._fail(Failure.NOT_ENOUGH_BOOKIES, reason)

    def _fail(self, failure: Failure, reason: str) -> list[Effect]:
        self._state = _State.FAILED
        return [Failed(failure, reason)]

    def check(self) -> None:
        """Asserts what must always hold."""
        self._pending.check()
        self._replacing.check()
        first = -1
        for start, members in self._metadata.ensembles:
            assert start > first, "segments begin at ever higher entries"
            assert len(members) == self._layout.ensemble_size
            assert len(set(members)) == len(members), "a bookie holds one copy at most"
            first = start
        assert first <= self.last_confirmed + 1, "the last segment begins behind what is confirmed"
        assert self.last_told <= self.last_confirmed, "bookies were told of what is not confirmed"
        assert self.pending_bytes >= 0
        assert self._pending or not self.pending_bytes, "bytes are under way, and no entries"
        if not self.is_over:
            assert self._metadata.state is LedgerState.OPEN, "written to a ledger that is not open"
            assert self._written or self._metadata.ensembles[-1][1] == tuple(self._ensemble), "other members"
        if self._state is _State.CLOSED:
            assert self._metadata.end is not None, "closed without an end"
