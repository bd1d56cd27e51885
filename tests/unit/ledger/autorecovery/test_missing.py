"""What a bookie lacks by its list, and how many copies that leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.autorecovery.fragments import Fragment
from magnetar.ledger.autorecovery.missing import fewest_copies, missing_of
from magnetar.ledger.quorum.layout import QuorumLayout


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(1, 5))
def test_missing_is_what_no_run_has(wanted: set[int], held: set[int], size_max: int) -> None:
    runs: list[range] = []
    for entry_id in sorted(held):
        if runs and runs[-1].stop == entry_id and len(runs[-1]) < size_max:
            runs[-1] = range(runs[-1].start, entry_id + 1)
        else:
            runs.append(range(entry_id, entry_id + 1))
    assert list(missing_of(sorted(wanted), runs)) == sorted(wanted - held)


def fragment(last: int, layout: QuorumLayout) -> Fragment:
    return Fragment(0, last, tuple("abcde"[: layout.ensemble_size]), layout)


@pytest.mark.parametrize(
    ("last", "wholly", "missing", "copies"),
    [
        (9, set(), {}, 2),
        (9, {0}, {}, 1),
        (9, {0, 1}, {}, 0),
        # Entry 0 lies at places 0 and 1.
        (9, set(), {0: (0,)}, 1),
        (9, set(), {0: (0,), 1: (0,)}, 0),
        (9, {0}, {1: (0,)}, 0),
        (9, {0}, {2: (1,)}, 1),
        # The fragment has no entry that lies at places 1 and 2.
        (0, {1, 2}, {}, 1),
        (-1, {0, 1, 2}, {}, 2),
    ],
)
def test_the_entry_with_fewest_copies_counts(
    last: int, wholly: set[int], missing: dict[int, tuple[int, ...]], copies: int
) -> None:
    assert fewest_copies(fragment(last, QuorumLayout(3, 2, 2)), wholly, missing) == copies


@given(st.integers(0, 12), st.sets(st.integers(0, 3)), st.data())
def test_it_is_what_counting_them_gives(last: int, wholly: set[int], data: st.DataObject) -> None:
    part = fragment(last, QuorumLayout(4, 3, 2))
    missing = {
        index: tuple(sorted(data.draw(st.sets(st.sampled_from(held)))))
        for index in set(range(4)) - wholly
        if (held := list(part.entries(index)))
    }
    counted = min(
        sum(
            index not in wholly and entry_id not in missing.get(index, ())
            for index in part.layout.write_set(entry_id)
        )
        for entry_id in range(last + 1)
    )
    assert fewest_copies(part, wholly, missing) == counted
