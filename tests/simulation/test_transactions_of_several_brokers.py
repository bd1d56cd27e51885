"""Simulated transactions on two brokers, and that the seeds bite. More: `./dev sim --scenario several`."""

from __future__ import annotations

import pytest
from sim.run import first_to_fail, run_seed
from sim.several.mutations import SEVERAL_MUTATIONS

SEEDS = 20
"""In the seed that is told or in one of these every broken rule must be noticed: a seed takes two seconds."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    seeds = range(first, first + (10 if nightly else 2))
    assert [outcome for seed in seeds if (outcome := run_seed(seed, "several")).violations] == []


def test_a_seed_is_the_whole_run() -> None:
    one, again, other = (run_seed(seed, "several").log_hash for seed in (3, 3, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("name", SEVERAL_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """The seed that found it, or another one: what the product does differently makes other stories."""
    mutation = SEVERAL_MUTATIONS[name]
    with mutation.broken():
        noticed = first_to_fail(mutation.scenario, [mutation.found_by, *range(SEEDS)])
        assert noticed is not None, f"{mutation.rule}: broken, and nobody noticed"
    assert run_seed(noticed.seed, mutation.scenario).violations == ()
