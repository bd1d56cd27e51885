from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.client.placement import NotEnoughBookiesError, RackPlacement
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.metadata.bookkeeper.racks import UNKNOWN_RACK

RACKS = {"a1": "/a", "a2": "/a", "a3": "/a", "b1": "/b", "b2": "/b", "c1": "/c"}


def placement(seed: int = 0) -> RackPlacement:
    chance = Random(seed)

    def shuffled(names: Sequence[str]) -> list[str]:
        return chance.sample(list(names), len(names))

    return RackPlacement(RACKS.__getitem__, shuffled=shuffled)


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_stand_in_different_racks(seed: int) -> None:
    ensemble = placement(seed).new_ensemble(QuorumLayout(2, 2, 2), RACKS.keys())
    assert len({RACKS[bookie] for bookie in ensemble}) == 2
    three = placement(seed).new_ensemble(QuorumLayout(3, 3, 2), RACKS.keys())
    assert len(set(three)) == 3
    assert len({RACKS[bookie] for bookie in three}) >= 2


def test_one_rack_is_enough_when_there_is_no_other() -> None:
    assert sorted(placement().new_ensemble(QuorumLayout(2, 2, 1), {"a1", "a2"})) == ["a1", "a2"]


def test_too_few_bookies_are_too_few() -> None:
    with pytest.raises(NotEnoughBookiesError) as raised:
        placement().new_ensemble(QuorumLayout(3, 3, 2), {"a1", "b1"})
    assert (raised.value.needed, raised.value.usable) == (3, 2)


def test_who_is_in_quarantine_is_chosen_last() -> None:
    layout = QuorumLayout(2, 2, 2)
    for seed in range(10):
        assert "a1" not in placement(seed).new_ensemble(layout, {"a1", "a2", "b1"}, {"a1"})
    assert "a1" in placement().new_ensemble(layout, {"a1", "b1"}, {"a1"})


def test_a_successor_is_no_member_nobody_excluded_and_of_another_rack() -> None:
    layout = QuorumLayout(3, 2, 2)
    chosen = placement().replacements(
        layout, ("a1", "b1", "c1"), {1: "b1"}, RACKS.keys(), frozenset({"b1", "a1", "c1"})
    )
    assert chosen == {1: "b2"}


def test_places_without_a_successor_are_left_out() -> None:
    layout = QuorumLayout(3, 3, 2)
    usable = {"a1", "b1", "c1", "a2"}
    failed = {0: "a1", 1: "b1"}
    chosen = placement().replacements(layout, ("a1", "b1", "c1"), failed, usable, frozenset({"a1", "b1"}))
    assert list(chosen.values()) == ["a2"]
    assert placement().replacements(layout, ("a1", "b1", "c1"), failed, {"c1"}, frozenset()) == {}


@st.composite
def racks_and_layouts(draw: st.DrawFn) -> tuple[dict[str, str], QuorumLayout, int, int]:
    """Racks of bookies, quorums, how many racks an entry needs, a seed."""
    racks = draw(st.integers(3, 5))
    each = draw(st.integers(2, 3))
    ensemble = draw(st.integers(2, 5))
    write = draw(st.integers(2, ensemble))
    where = {f"{rack}.{n}": f"/{rack}" for rack in range(racks) for n in range(each)}
    return where, QuorumLayout(ensemble, write, draw(st.integers(1, write))), 2, draw(st.integers(0, 1_000))


def enforced(where: dict[str, str], racks_min: int, seed: int) -> RackPlacement:
    chance = Random(seed)

    def shuffled(names: Sequence[str]) -> list[str]:
        return chance.sample(list(names), len(names))

    return RackPlacement(
        lambda bookie: where.get(bookie, UNKNOWN_RACK), racks_min=racks_min, enforced=True, shuffled=shuffled
    )


@given(racks_and_layouts(), st.data())
def test_enforced_racks_hold_for_every_entry_and_stay_when_bookies_go(
    given_: tuple[dict[str, str], QuorumLayout, int, int], data: st.DataObject
) -> None:
    where, layout, racks_min, seed = given_
    chooser = enforced(where, racks_min, seed)
    ensemble = list(chooser.new_ensemble(layout, {*where, "of-no-rack"}))
    assert "of-no-rack" not in ensemble
    assert chooser.spans_racks(layout, ensemble)
    for _ in range(4):
        index = data.draw(st.integers(0, layout.ensemble_size - 1))
        failed = {index: ensemble[index]}
        chosen = chooser.replacements(layout, ensemble, failed, {*where, "of-no-rack"}, set(failed.values()))
        for at, bookie in chosen.items():
            ensemble[at] = bookie
        assert chooser.spans_racks(layout, ensemble)
        assert len(set(ensemble)) == len(ensemble)


def test_enforced_racks_that_are_not_there_are_an_error() -> None:
    where = {f"b{n}": "/one" for n in range(5)}
    with pytest.raises(NotEnoughBookiesError):
        enforced(where, 2, 0).new_ensemble(QuorumLayout(3, 3, 2), where.keys())
    where["c"] = "/two"
    assert "c" in enforced(where, 2, 0).new_ensemble(QuorumLayout(3, 3, 2), where.keys())
    # No bookie of the first rack takes the place of the only one of the second.
    chosen = enforced(where, 2, 0).replacements(
        QuorumLayout(2, 2, 2), ("b0", "c"), {1: "c"}, where.keys(), frozenset({"c"})
    )
    assert chosen == {}


@given(st.integers(2, 5), st.integers(0, 500))
def test_three_racks_for_three_copies(each: int, seed: int) -> None:
    where = {f"{rack}.{n}": f"/{rack}" for rack in "abc" for n in range(each)}
    layout = QuorumLayout(3, 3, 2)
    ensemble = enforced(where, 3, seed).new_ensemble(layout, where.keys())
    assert {where[bookie] for bookie in ensemble} == {"/a", "/b", "/c"}
