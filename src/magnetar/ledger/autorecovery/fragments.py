"""The fragments of a ledger: which entries each bookie of each ensemble should hold. Pure.

A fragment is a run of entries with one ensemble. A member holds those entries of a fragment that are striped
to its place. The last fragment of a ledger that is not closed has no end yet, and only its writer may change
its members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries `first..last` of a ledger, and their ensemble."""

    first: int
    last: int | None
    """`first` - 1 when there are no entries; None when the writer may still add some."""
    members: tuple[str, ...]
    layout: QuorumLayout

    @property
    def is_open(self) -> bool:
        return self.last is None

    def entries(self, index: int) -> Iterator[int]:
        """The entries of the member at `index`, ascending. Not for an open fragment."""
        assert self.last is not None
        for entry_id in range(self.first, self.last + 1):
            if self.layout.holds(index, entry_id):
                yield entry_id

    def count(self, index: int) -> int:
        """The number of entries of the member at `index`. Not for an open fragment."""
        assert self.last is not None
        size, quorum = self.layout.ensemble_size, self.layout.write_quorum
        rounds, rest = divmod(self.last + 1 - self.first, size)
        return rounds * quorum + sum(
            self.layout.holds(index, entry_id) for entry_id in range(self.last + 1 - rest, self.last + 1)
        )

    def bounds(self, index: int) -> tuple[int, ...]:
        """The first and the last entry of the member at `index`: none, one or two. An open fragment has none
        for certain."""
        if self.last is None or self.last < self.first:
            return ()
        size = self.layout.ensemble_size
        near = range(self.first, min(self.last, self.first + size - 1) + 1)
        far = range(self.last, max(self.first, self.last - size + 1) - 1, -1)
        first = next((entry_id for entry_id in near if self.layout.holds(index, entry_id)), None)
        last = next((entry_id for entry_id in far if self.layout.holds(index, entry_id)), None)
        return () if first is None or last is None else tuple(dict.fromkeys((first, last)))

    def sample(self, index: int, share: float) -> tuple[int, ...]:
        """`bounds`, and evenly between them enough entries for `share` (0..1) of the member's entries."""
        bounds = self.bounds(index)
        count = round(self.count(index) * share) if len(bounds) == 2 else 0
        if count <= 2:
            return bounds
        step = max(1, self.count(index) // count)
        every = [entry_id for at, entry_id in enumerate(self.entries(index)) if at % step == 0]
        return tuple(sorted({*bounds, *every}))


def fragments_of(metadata: LedgerMetadata) -> list[Fragment]:
    """All fragments in order. A ledger that is not closed ends with an open one."""
    layout = QuorumLayout(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    starts = [first for first, _ in metadata.ensembles]
    end = metadata.end.last_entry if metadata.end is not None else None
    lasts: list[int | None] = [start - 1 for start in starts[1:]]
    # A closed ledger may end before its last ensemble began.
    lasts.append(None if end is None else max(end, starts[-1] - 1))
    return [
        Fragment(first, last, members, layout)
        for (first, members), last in zip(metadata.ensembles, lasts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Lack:
    """Places in one fragment whose copies are lost."""

    fragment: Fragment
    places: Mapping[int, str]
    """Index in the ensemble, and the bookie there."""
    missing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For the places where it is known: the entries that are lost there, ascending. At the other places all
    are lost."""


def held_by(metadata: LedgerMetadata, bookies: Set[str]) -> frozenset[str]:
    """Those of `bookies` that hold entries of the ledger, or should."""
    return frozenset(bookie for _, members in metadata.ensembles for bookie in members) & bookies


def moved(
    metadata: LedgerMetadata, first: int, places: Mapping[int, tuple[str, str]]
) -> LedgerMetadata | None:
    """The metadata with other members in the ensemble that begins at `first`: index to (old, new).

    None when another process has changed that ensemble.
    """
    ensembles = list(metadata.ensembles)
    for at, (start, members) in enumerate(ensembles):
        is_last_of_open = at == len(ensembles) - 1 and metadata.state is not LedgerState.CLOSED
        if start == first and not is_last_of_open:
            changed = list(members)
            for index, (old, new) in places.items():
                if changed[index] != old or new in changed:
                    return None
                changed[index] = new
            ensembles[at] = (start, tuple(changed))
            return metadata.with_ensembles(tuple(ensembles))
    return None
