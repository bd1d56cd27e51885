"""Copies in regions: every entry has its copies here and there, before and after bookies go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.client.placement import NotEnoughBookiesError
from magnetar.ledger.client.regions import DEFAULT_REGION, RegionPlacement, RegionRules, region_of
from magnetar.ledger.quorum.layout import QuorumLayout

REGIONS = ("east", "north", "west")


def location(bookie: str) -> str:
    """Bookies are named region.rack.number."""
    region, rack, _ = bookie.split(".")
    return f"/{region}/{rack}"


def bookies(regions: Sequence[str], racks: int, each: int) -> set[str]:
    return {f"{region}.{rack}.{n}" for region in regions for rack in range(racks) for n in range(each)}


def placement(rules: RegionRules, seed: int = 0) -> RegionPlacement:
    chance = Random(seed)

    def shuffled(names: Sequence[str]) -> list[str]:
        return chance.sample(list(names), len(names))

    return RegionPlacement(location, rules, shuffled=shuffled)


def rows(layout: QuorumLayout, ensemble: Sequence[str]) -> list[list[str]]:
    """The bookies of every entry."""
    size = layout.ensemble_size
    return [[ensemble[(first + n) % size] for n in range(layout.write_quorum)] for first in range(size)]


def check(layout: QuorumLayout, rules: RegionRules, ensemble: Sequence[str]) -> None:
    assert len(set(ensemble)) == layout.ensemble_size
    for row in rows(layout, ensemble):
        assert Counter(region_of(location(bookie)) for bookie in row) == Counter(rules.copies)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[QuorumLayout, RegionRules, int]:
    """Copies by region, an ensemble that fits them, a seed."""
    regions = draw(st.lists(st.sampled_from(REGIONS), min_size=1, max_size=3, unique=True))
    copies = {region: draw(st.integers(1, 3)) for region in regions}
    quorum = sum(copies.values())
    size = quorum * draw(st.integers(1, 2))
    ack = draw(st.integers(1, quorum))
    return QuorumLayout(size, quorum, ack), RegionRules(copies), draw(st.integers(0, 1_000))


@given(divisions())
def test_every_entry_has_its_copies_in_every_region_and_two_racks(
    division: tuple[QuorumLayout, RegionRules, int],
) -> None:
    layout, rules, seed = division
    ensemble = placement(rules, seed).new_ensemble(layout, bookies(REGIONS, 3, 6))
    check(layout, rules, ensemble)
    for row in rows(layout, ensemble):
        for region, copies in rules.copies.items():
            racks = {location(bookie) for bookie in row if bookie.startswith(region)}
            assert len(racks) >= min(copies, 2)


@given(divisions(), st.data())
def test_it_stays_so_when_bookies_are_replaced(
    division: tuple[QuorumLayout, RegionRules, int], data: st.DataObject
) -> None:
    layout, rules, seed = division
    chooser, everybody = placement(rules, seed), bookies(REGIONS, 3, 6)
    ensemble = chooser.new_ensemble(layout, everybody)
    places = data.draw(st.sets(st.integers(0, layout.ensemble_size - 1), min_size=1))
    failed = {place: ensemble[place] for place in sorted(places)}
    chosen = chooser.replacements(layout, ensemble, failed, everybody, frozenset(failed.values()))
    assert chosen.keys() == failed.keys()
    after = [chosen.get(place, bookie) for place, bookie in enumerate(ensemble)]
    assert not set(chosen.values()) & set(failed.values())
    check(layout, rules, after)


def test_three_here_and_three_there() -> None:
    layout, rules = QuorumLayout(6, 6, 4), RegionRules({"east": 3, "west": 3})
    ensemble = placement(rules).new_ensemble(layout, bookies(("east", "west"), 3, 1))
    assert Counter(bookie.split(".")[0] for bookie in ensemble) == {"east": 3, "west": 3}
    assert len(set(ensemble)) == 6
    assert rules.pattern(layout) == ("east", "west", "east", "west", "east", "west")


def test_a_region_that_is_gone_is_an_error_or_done_without() -> None:
    layout, copies = QuorumLayout(4, 4, 2), {"east": 2, "west": 2}
    left = bookies(("east",), 3, 3) | {"west.0.0"}
    with pytest.raises(NotEnoughBookiesError) as raised:
        placement(RegionRules(copies)).new_ensemble(layout, left)
    assert raised.value.needed == 4
    relaxed = placement(RegionRules(copies, enforced=False))
    ensemble = relaxed.new_ensemble(layout, left)
    assert "west.0.0" in ensemble
    # When the region is back, the places that others hold for it are given to it as they come free.
    place = next(n for n, each in enumerate(ensemble) if each.startswith("east") and n % 2)
    everybody = left | bookies(("west",), 3, 3)
    chosen = relaxed.replacements(
        layout, ensemble, {place: ensemble[place]}, everybody, frozenset({ensemble[place]})
    )
    assert chosen[place].startswith("west")


def test_nobody_of_another_region_takes_a_place() -> None:
    layout, rules = QuorumLayout(2, 2, 2), RegionRules({"east": 1, "west": 1})
    ensemble = ("east.0.0", "west.0.0")
    chosen = placement(rules).replacements(
        layout, ensemble, {1: "west.0.0"}, bookies(("east",), 3, 3), frozenset({"west.0.0"})
    )
    assert chosen == {}


def test_who_is_in_quarantine_is_chosen_last() -> None:
    layout, rules = QuorumLayout(2, 2, 2), RegionRules({"east": 1, "west": 1})
    everybody = bookies(("east", "west"), 1, 2)
    for seed in range(10):
        ensemble = placement(rules, seed).new_ensemble(layout, everybody, {"east.0.0", "west.0.1"})
        assert set(ensemble) == {"east.0.1", "west.0.0"}


@pytest.mark.parametrize(
    ("layout", "copies"),
    [
        (QuorumLayout(6, 6, 3), {"east": 3, "west": 2}),
        (QuorumLayout(6, 6, 3), {"east": 6, "west": 0}),
        (QuorumLayout(9, 6, 3), {"east": 3, "west": 3}),
        (QuorumLayout(5, 4, 2), {"east": 2, "west": 2}),
    ],
)
def test_what_cannot_be_divided_is_refused(layout: QuorumLayout, copies: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="copies"):
        RegionRules(copies).pattern(layout)


def test_where_a_bookie_is() -> None:
    assert region_of("/east/r1") == "east"
    assert region_of("/default-rack") == DEFAULT_REGION
    assert region_of("/east/row/rack") == "east"
