"""Ensembles whose copies stand in too few racks, and which copies move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.autorecovery.placement_repair import moves, racks_short
from magnetar.ledger.quorum.layout import QuorumLayout

EVERY = QuorumLayout(3, 3, 2)


def rack(bookie: str) -> str:
    """Bookies are named rack and number."""
    return bookie[0]


@pytest.mark.parametrize(
    ("members", "layout", "racks_min", "short"),
    [
        (("a1", "b1", "a2"), EVERY, 2, 0),
        (("a1", "a2", "a3"), EVERY, 2, 3),
        (("a1", "b1", "a2"), EVERY, 3, 3),
        # Of E4 Qw2 only neighbours share entries, the last and the first too.
        (("a1", "b1", "a2", "b2"), QuorumLayout(4, 2, 2), 2, 0),
        (("a1", "a2", "b1", "b2"), QuorumLayout(4, 2, 2), 2, 2),
        # One copy stands in one rack.
        (("a1", "a2"), QuorumLayout(2, 1, 1), 2, 0),
    ],
)
def test_rows_of_neighbours_span_racks(
    members: tuple[str, ...], layout: QuorumLayout, racks_min: int, short: int
) -> None:
    assert racks_short(members, layout, rack, racks_min) == short


def test_one_move_is_enough_and_the_preferred_one_takes_it() -> None:
    assert moves(("a1", "a2", "a3"), EVERY, rack, 2, ["a4", "b2", "b1", "c1"]) == {0: "b2"}


def test_nobody_moves_for_nothing() -> None:
    assert moves(("a1", "b1", "a2"), EVERY, rack, 2, ["c1"]) == {}
    assert moves(("a1", "a2", "a3"), EVERY, rack, 2, ["a4", "a5"]) == {}
    # Two racks are better than one where there is no third.
    assert moves(("a1", "a2", "a3"), EVERY, rack, 3, ["b1", "b2"]) == {0: "b1"}


sizes = st.integers(1, 5).flatmap(
    lambda size: st.integers(1, size).map(lambda quorum: QuorumLayout(size, quorum, quorum))
)


@given(sizes, st.data(), st.integers(1, 3))
def test_moves_improve_and_keep_members_apart(layout: QuorumLayout, data: st.DataObject, least: int) -> None:
    names = [f"{each}{number}" for each in "abc" for number in range(5)]
    shuffled = data.draw(st.permutations(names))
    members, usable = shuffled[: layout.ensemble_size], shuffled[: data.draw(st.integers(0, len(names)))]
    before = racks_short(members, layout, rack, least)
    chosen = moves(members, layout, rack, least, usable)
    after = [chosen.get(index, bookie) for index, bookie in enumerate(members)]
    assert len(set(after)) == len(after)
    assert set(chosen.values()) <= set(usable) - set(members)
    assert racks_short(after, layout, rack, least) < before or not chosen
    if {"a", "b", "c"} <= {rack(bookie) for bookie in usable if bookie not in members} and least == 2:
        assert racks_short(after, layout, rack, least) == 0
