from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from magnetar.ledger.client.placement import NotEnoughBookiesError, RackPlacement
from magnetar.ledger.quorum.layout import QuorumLayout

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
