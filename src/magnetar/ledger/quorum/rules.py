"""The rules of writing, recovering and reading a ledger on which its entries depend (pure).

They are handed to `QuorumWriter`, `LedgerRecovery` and `LedgerReads` as objects, so that the simulator can
hand in broken ones and show that each is needed (`sim/mutations.py`).

Source: BookKeeper replication protocol; its TLA+ findings on fencing reads and on the first entry to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.pending import PendingEntries
from magnetar.wire.bookkeeper.digests import Digester
from magnetar.wire.bookkeeper.status import Status


class WritingRules:
    """When an entry counts as confirmed while bookies fail and are replaced."""

    __slots__ = ()

    def hears(self, bookie: str, member: str) -> bool:
        """Whether the answer of a bookie counts in the place of `member`."""
        return bookie == member

    def is_copy(self, status: Status) -> bool:
        """Whether a bookie that answers so has the entries for good. One with a fence took nothing: the
        writer gives up."""
        return status is Status.OK

    def copies_needed(self, layout: QuorumLayout) -> int:
        """How many members of the current ensemble must have an entry that is confirmed."""
        return layout.ack_quorum

    def pending(self, layout: QuorumLayout) -> PendingEntries:
        """What confirms entries: in order, up to the first that lacks copies. A reader takes all entries up
        to the last confirmed one for confirmed."""
        return PendingEntries(layout, copies_needed=self.copies_needed(layout))

    def may_confirm(self, *, changing: bool) -> bool:
        """Whether entries may be confirmed. Not while the ensemble is `changing`: the new one begins behind
        the last confirmed entry, which must not move on meanwhile."""
        return not changing

    def keeps_copies_of_the_replaced(self) -> bool:
        """Whether copies on a bookie that was replaced still count. The metadata does not name it any more,
        so no reader would ask it."""
        return False

    def first_of_change(self, confirmed: int, pushed: int, last_first: int) -> int:
        """The first entry of a new ensemble. `confirmed`, `pushed`: the last confirmed and the last appended
        entry; `last_first`: the first entry of the ensemble before."""
        return confirmed + 1

    def goes_on_from(self, stored: LedgerMetadata, known: LedgerMetadata) -> LedgerMetadata | None:
        """The metadata on top of which a change is made again that met another one. `stored`: as it is now,
        with a change that this writer did not make; `known`: as this writer made it last. None: the ledger
        is another client's, which recovers it or has closed it, and the writer gives up."""
        return stored if stored.state is LedgerState.OPEN else None


class RecoveryRules:
    """What proves that a ledger ends where a recovery says."""

    __slots__ = ()

    def fences_last_reads(self) -> bool:
        """Whether the reads fence by which members are asked how far the ledger reaches."""
        return True

    def fences_entry_reads(self) -> bool:
        """Whether the reads of entries fence. Otherwise an absence that was counted could become a copy."""
        return True

    def is_known(self, status: Status) -> bool:
        """Whether a member with this answer has told how far it reaches."""
        return status.is_certain

    def first_to_read(self, highest_lac: int, last_segment: int) -> int:
        """The first entry to read, from the highest last-add-confirmed seen and the first entry of the last
        segment. Entries before that segment were confirmed when it began: reading them again would add
        committed entries to an ensemble that begins after them."""
        return max(highest_lac + 1, last_segment)

    def members_to_read(self, at_start: Sequence[str], now: Sequence[str]) -> Sequence[str]:
        """The members that are asked for an entry: those at the start of the recovery. A bookie that took a
        place since has nothing yet."""
        return at_start

    def confirmed_to_tell(self, first_read: int, confirmed: int) -> int:
        """The last add confirmed in the entries that are written again: the one of the start, before
        `first_read`.

        Later entries, up to `confirmed`, may be confirmed on bookies that only this recovery knows: those get
        into the metadata with the end. If the recovery does not finish, the next one must not count them as
        confirmed on the bookies in the metadata, and leave them out."""
        return first_read - 1

    def members_to_write(self, write_set: Iterable[int]) -> Iterable[int]:
        """The members that get an entry again which was found: all that should have it. It may be on fewer
        than a later reader asks."""
        return write_set

    def copies_needed(self, layout: QuorumLayout) -> int:
        """How many members must have an entry that was found before the ledger is closed behind it."""
        return layout.ack_quorum

    def adopts(self, stored: LedgerMetadata) -> bool:
        """Whether a recovery ends with the metadata as it is stored now. The first end that is written wins:
        clients may have read up to it, and no further."""
        return stored.state is LedgerState.CLOSED

    def is_absence(self, status: Status) -> bool:
        """Whether a member with this answer certainly lacks the entry."""
        return status in (Status.NO_ENTRY, Status.NO_LEDGER)

    def absences_needed(self, layout: QuorumLayout) -> int:
        """How many members must lack an entry that is not there."""
        return layout.absence_quorum


class ReadingRules:
    """What a reader believes."""

    __slots__ = ()

    def opener(self, digester: Digester) -> Digester:
        """What copies of entries are opened with: a copy whose digest is not the writer's is none."""
        return digester


WRITING_RULES: Final = WritingRules()
RECOVERY_RULES: Final = RecoveryRules()
READING_RULES: Final = ReadingRules()
