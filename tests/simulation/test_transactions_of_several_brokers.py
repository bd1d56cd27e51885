"""Simulated transactions on two brokers, and that the seeds bite. More: `./dev sim --scenario several`."""

from __future__ import annotations

import pytest
from sim.several.mutations import SEVERAL_MUTATIONS

from support.seeds import check_noticed, failing, is_the_whole_run

SEEDS = 20
"""In the seed that is told or in one of these every broken rule must be noticed: a seed takes two seconds."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    seeds = range(first, first + (10 if nightly else 2))
    assert failing(seeds, "several") == []


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(3, 2, "several")


@pytest.mark.parametrize("name", SEVERAL_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str, nightly: bool) -> None:
    """That its seed holds with the rule is checked at night; by day the seeds above hold with all rules."""
    check_noticed(SEVERAL_MUTATIONS[name], range(SEEDS), held=nightly)
