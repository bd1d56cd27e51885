"""Decides which small objects of neighbouring ledgers are merged. Pure.

Only ledgers that the bookies no longer have are merged: a ledger that they still have can be copied again
when its object is damaged.

An object of several ledgers is deleted once all of them may be deleted. So its ledgers span at most a tenth
of the time, and of the bytes, that retention keeps; no message is kept more than a tenth longer than
necessary.

Each merge makes an object at least half as large again as its parts, so that a byte is rewritten only a few
times, however often merging is requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from magnetar.tiered.api import SealedLedger

TARGET_BYTES: Final = 128 << 20
"""Bytes of a merged object, at most."""
CHEAP_BYTES: Final = 4 << 20
"""Bytes up to which an object is merged even when it grows by less than half."""
LEDGERS_MAX: Final = 1000
"""Most ledgers of one object; its footer names all of them."""
REPLACED_MAX: Final = 2000
"""Most replaced copies in one stored list that are not deleted yet."""
_RETENTION_PARTS: Final = 10


class MergeBlock(NamedTuple):
    """The ledgers of one object."""

    ledgers: tuple[SealedLedger, ...]

    @property
    def file_bytes(self) -> int:
        """Bytes of the object."""
        context = self.ledgers[0].offload
        assert context is not None
        return context.segments[0].file_bytes

    @property
    def entry_bytes(self) -> int:
        """Bytes of the entries, as stored by the bookies."""
        return sum(ledger.size_bytes for ledger in self.ledgers)


class MergeLimits(NamedTuple):
    """Bounds of one merged object."""

    target_bytes: int = TARGET_BYTES
    age_ms: int | None = None
    """Milliseconds between the last entries of its first and its last ledger; None: no bound."""
    entry_bytes: int | None = None

    @classmethod
    def under(cls, target_bytes: int, retention: tuple[int, int]) -> MergeLimits:
        """The limits for a retention in milliseconds and bytes; negative values mean no bound."""
        age_ms, size_bytes = (None if limit < 0 else limit // _RETENTION_PARTS for limit in retention)
        return cls(target_bytes, age_ms, size_bytes)


class MergeBounds(NamedTuple):
    """Bounds of the part of a plan that one round does."""

    members_min: int = 2
    """Fewest objects of a group."""
    bytes_max: int | None = None
    """Most bytes of objects; the first group is merged whatever its size."""

    def of(self, groups: Sequence[tuple[MergeBlock, ...]]) -> list[tuple[MergeBlock, ...]]:
        """The groups to merge within these bounds, oldest first."""
        found: list[tuple[MergeBlock, ...]] = []
        taken = 0
        for group in groups:
            if len(group) < self.members_min:
                continue
            taken += sum(block.file_bytes for block in group)
            if found and self.bytes_max is not None and taken > self.bytes_max:
                break
            found.append(group)
        return found


EVERYTHING: Final = MergeBounds()


def plan(sealed: Sequence[SealedLedger], limits: MergeLimits) -> list[tuple[MergeBlock, ...]]:
    """Groups of neighbouring objects to merge, oldest first. `sealed`: all sealed ledgers of a log, in
    order."""
    found: list[tuple[MergeBlock, ...]] = []
    for run in _small_neighbours(sealed, limits.target_bytes // 2):
        group: list[MergeBlock] = []
        for block in run:
            if group and not _fits((*group, block), limits):
                found += worthwhile(tuple(group))
                group = []
            group.append(block)
        found += worthwhile(tuple(group))
    return found


def _small_neighbours(sealed: Sequence[SealedLedger], bytes_max: int) -> Iterator[list[MergeBlock]]:
    run: list[MergeBlock] = []
    for _, ledgers in groupby(sealed, _object_of):
        block = MergeBlock(tuple(ledgers))
        if all(_is_mergeable(ledger) for ledger in block.ledgers) and block.file_bytes < bytes_max:
            run.append(block)
        else:
            yield run
            run = []
    yield run


def _object_of(ledger: SealedLedger) -> UUID | int:
    return ledger.ledger_id if ledger.offload is None else ledger.offload.attempt


def _is_mergeable(ledger: SealedLedger) -> bool:
    context = ledger.offload
    if context is None or context.foreign or not (context.complete and context.local_deleted):
        return False
    return len(context.segments) == 1


def _fits(group: tuple[MergeBlock, ...], limits: MergeLimits) -> bool:
    if sum(block.file_bytes for block in group) > limits.target_bytes:
        return False
    if sum(len(block.ledgers) for block in group) > LEDGERS_MAX:
        return False
    if limits.entry_bytes is not None and sum(block.entry_bytes for block in group) > limits.entry_bytes:
        return False
    first, last = group[0].ledgers[0], group[-1].ledgers[-1]
    return limits.age_ms is None or last.timestamp_ms - first.timestamp_ms <= limits.age_ms


def worthwhile(group: tuple[MergeBlock, ...]) -> Iterator[tuple[MergeBlock, ...]]:
    """The group; when its largest object would gain too little, the parts on both sides of that object."""
    if len(group) < 2:
        return
    sizes = [block.file_bytes for block in group]
    largest, total = max(sizes), sum(sizes)
    if total <= CHEAP_BYTES or 3 * largest <= 2 * total:
        yield group
        return
    at = sizes.index(largest)
    yield from worthwhile(group[:at])
    yield from worthwhile(group[at + 1 :])
