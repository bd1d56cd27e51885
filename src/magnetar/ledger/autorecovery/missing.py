"""The entries that a bookie should hold and lacks, according to its list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from magnetar.ledger.autorecovery.fragments import Fragment


def missing_of(entries: Iterable[int], runs: Iterable[range]) -> Iterator[int]:
    """Those of `entries` (ascending) that are in none of `runs` (ascending), ascending."""
    ahead = iter(runs)
    run = next(ahead, None)
    for entry_id in entries:
        while run is not None and run.stop <= entry_id:
            run = next(ahead, None)
        if run is None or entry_id < run.start:
            yield entry_id


def fewest_copies(fragment: Fragment, wholly: Collection[int], missing: Mapping[int, Iterable[int]]) -> int:
    """The number of copies of the entry that has the fewest. Not for an open fragment.

    `wholly`: places (indexes) that lost all copies; `missing`: lost entries at other places.
    """
    assert fragment.last is not None
    layout = fragment.layout
    if fragment.last < fragment.first:
        return layout.write_quorum

    def lost(entry_id: int) -> int:
        return sum(index in wholly for index in layout.write_set(entry_id))

    rounds = range(fragment.first, min(fragment.last + 1, fragment.first + layout.ensemble_size))
    most = max(map(lost, rounds))
    singly = Counter(entry_id for entries in missing.values() for entry_id in entries)
    return layout.write_quorum - max([most, *(lost(each) + count for each, count in singly.items())])
