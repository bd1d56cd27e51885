"""All segments of a store: which of them hold a ledger, which ledgers are deleted, what is damaged."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.base.errors import CorruptDataError, LostEntriesError, LostRange
from magnetar.base.ids import NO_LEDGER, LedgerId
from magnetar.bookie.index import UNKNOWN_OWNER, BlockPlace, Damage, LedgerIndex
from magnetar.bookie.segment_file import SegmentFile

_log = logging.getLogger("magnetar.bookie")


OPEN_FILES_MAX: Final = 128
"""Sealed segments whose files stay open because they were read recently; a store may have thousands."""


class SegmentSet:
    """Segments by id, and the deleted ledgers that still have blocks in some of them."""

    def __init__(self) -> None:
        self._segments: dict[int, SegmentFile] = {}
        self._recent: OrderedDict[int, SegmentFile] = OrderedDict()
        self.deleted: set[LedgerId] = set()

    def load(self, segments: list[SegmentFile]) -> None:
        """Takes the segments found when the store was opened, ascending."""
        for segment in segments:
            self._segments[segment.segment_id] = segment
            self.deleted.update(segment.tombstones)
            segment.rest()
        present: set[int] = set()
        for segment in segments:
            present.update(segment.ledger_ids())
            segment.count_live(self.deleted)
        self.deleted &= present

    def __iter__(self) -> Iterator[SegmentFile]:
        return iter(list(self._segments.values()))

    def get(self, segment_id: int) -> SegmentFile | None:
        """The segment; None when it was removed."""
        return self._segments.get(segment_id)

    def add(self, segment: SegmentFile) -> None:
        """A new segment, later than all others."""
        self._segments[segment.segment_id] = segment

    def remove(self, segment: SegmentFile) -> bool:
        """Takes a segment out; False when it was out already."""
        if self._segments.pop(segment.segment_id, None) is None:
            return False
        self._recent.pop(segment.segment_id, None)
        for ledger_id in segment.ledger_ids():
            if not self.holds(ledger_id):
                self.deleted.discard(ledger_id)
        return True

    def replace(self, segment: SegmentFile, fresh: SegmentFile) -> None:
        """`fresh` replaces `segment`, without blocks of ledgers that are deleted."""
        assert self._segments[segment.segment_id] is segment
        self._segments[segment.segment_id] = fresh
        self._recent.pop(segment.segment_id, None)
        fresh.count_live(self.deleted)
        for ledger_id in segment.ledger_ids():
            if ledger_id in self.deleted and not self.holds(ledger_id):
                self.deleted.discard(ledger_id)
        segment.drop()
        self.used(fresh)

    @contextmanager
    def pinned(self, segment: SegmentFile) -> Iterator[int]:
        """The segment's file, open for the duration of the block. Raises OSError."""
        segment.pin()
        try:
            self.used(segment)
            yield segment.fd
        finally:
            segment.unpin()

    def used(self, segment: SegmentFile) -> None:
        """Records a use of a segment's file; closes those that were not used for longest."""
        recent = self._recent
        recent[segment.segment_id] = segment
        recent.move_to_end(segment.segment_id)
        for segment_id in list(recent)[: max(len(recent) - OPEN_FILES_MAX, 0)]:
            if recent[segment_id].rest():
                del recent[segment_id]

    def holds(self, ledger_id: LedgerId) -> bool:
        """Whether any segment has blocks of the ledger, deleted or not."""
        return any(segment.holds(ledger_id) for segment in self._segments.values())

    def holding(self, ledger_id: LedgerId) -> list[SegmentFile]:
        """The segments with blocks of a ledger that is not deleted, ascending."""
        if ledger_id in self.deleted:
            return []
        return [segment for segment in self._segments.values() if segment.holds(ledger_id)]

    def ledger_ids(self) -> set[LedgerId]:
        """Ledgers that are not deleted and have blocks."""
        ids = {ledger_id for segment in self._segments.values() for ledger_id in segment.ledger_ids()}
        return ids - self.deleted

    def highest_ledger(self) -> LedgerId:
        """The highest ledger that has blocks or a tombstone here; -1 when there is none."""
        return max(
            (
                ledger_id
                for segment in self._segments.values()
                for ledger_id in (*segment.ledger_ids(), *segment.tombstones)
            ),
            default=NO_LEDGER,
        )

    def bury(self, ledger_id: LedgerId, active: SegmentFile) -> list[SegmentFile]:
        """Records a deleted ledger; returns the segments without living ledgers."""
        if ledger_id in self.deleted:
            # A tombstone that was written again because its segment is deleted.
            return []
        self.deleted.add(ledger_id)
        dead = []
        for segment in self._segments.values():
            if segment is active:
                # The tombstone is in the same file, after the blocks: a scan ends with the same result.
                assert segment.index is not None
                segment.index.ledgers.pop(ledger_id, None)
            elif segment.sealed is not None and segment.holds(ledger_id):
                segment.live_count -= 1
                if segment.live_count == 0:
                    dead.append(segment)
        if not self.holds(ledger_id):
            self.deleted.discard(ledger_id)
        return dead

    def needed_tombstones(self, segment: SegmentFile) -> list[LedgerId]:
        """Ledgers that would reappear without the tombstones in `segment`."""
        others = [other for other in self._segments.values() if other is not segment]
        return [
            ledger_id
            for ledger_id in segment.tombstones
            if ledger_id in self.deleted and any(other.holds(ledger_id) for other in others)
        ]

    # -- damage -------------------------------------------------------------------------------

    def _damages(self, ledger_id: LedgerId) -> Iterator[tuple[SegmentFile, Damage]]:
        for segment in self._segments.values():
            for damage in segment.damages:
                if damage.ledger_id == ledger_id:
                    yield segment, damage

    def uncertain_end(self, index: LedgerIndex) -> CorruptDataError | None:
        """Damage after the ledger's last known entry that may have been part of it, or None."""
        last = index.last_place
        # A later block proves that the ledger continued after the damage, and so does a lost one of it.
        known = [(segment.segment_id, damage.offset) for segment, damage in self._damages(index.ledger_id)]
        if last is not None:
            known.append((last.segment_id, last.offset))
        for segment, damage in self._damages(UNKNOWN_OWNER):
            if not known or (segment.segment_id, damage.offset) > max(known):
                detail = "the ledger's last entries may have been here"
                return CorruptDataError(str(segment.path), damage.offset, detail, index.ledger_id)
        return None

    def last_lost(self, ledger_id: LedgerId) -> int:
        """Last entry of the ledger that is known to be lost; -1 when there is none."""
        return max((damage.last_entry for _, damage in self._damages(ledger_id)), default=-1)

    def has_lost_blocks(self) -> bool:
        """Whether damage took blocks of unknown ledgers."""
        return any(
            damage.ledger_id == UNKNOWN_OWNER
            for segment in self._segments.values()
            for damage in segment.damages
        )

    def may_have_lost(self, ledger_id: LedgerId, entry: int) -> bool:
        """Whether damage may have taken an entry that is in no block."""
        return any(
            damage.ledger_id == UNKNOWN_OWNER
            or (damage.ledger_id == ledger_id and (damage.first_entry < 0 or _covers(damage, entry)))
            for segment in self._segments.values()
            for damage in segment.damages
        )

    def missing(self, index: LedgerIndex, entry: int) -> LostEntriesError:
        """The error for a written entry that is in no block, logged."""
        ledger_id = index.ledger_id
        before, following = index.preceding(entry), index.following(entry)
        first = 0 if before is None else before + 1
        last = None if following is None else following - 1
        for owner in (ledger_id, UNKNOWN_OWNER):
            for segment, damage in self._damages(owner):
                if damage.last_entry < 0 or damage.last_entry >= entry:
                    return lost(segment, damage.offset, f"entry {entry} was here", ledger_id, first, last)
        folder = next((str(segment.path.parent) for segment in self._segments.values()), "")
        error = LostEntriesError(
            folder, 0, f"entry {entry} is in no segment", LostRange(ledger_id, first, last)
        )
        _log.error("%s", error)
        return error

    def close(self) -> None:
        """Closes all files."""
        for segment in self._segments.values():
            segment.drop()


def _covers(damage: Damage, entry: int) -> bool:
    return damage.first_entry <= entry <= damage.last_entry


def corrupt(segment: SegmentFile, place: BlockPlace, detail: str, ledger_id: LedgerId) -> LostEntriesError:
    """The error for a block with wrong content, logged."""
    return lost(segment, place.offset, detail, ledger_id, place.first_entry, place.last_entry)


def lost(
    segment: SegmentFile, offset: int, detail: str, ledger_id: LedgerId, first: int, last: int | None
) -> LostEntriesError:
    """The error for entries lost to damage, logged."""
    error = LostEntriesError(str(segment.path), offset, detail, LostRange(ledger_id, first, last))
    _log.error("%s", error)
    return error
