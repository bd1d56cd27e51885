"""Seeds of the simulated broker, and that it bites. More of them: `./dev sim --scenario broker`."""

from __future__ import annotations

import pytest
from sim.broker.mutations import BROKER_MUTATIONS
from sim.run import first_to_fail, run_seed

SEEDS = 200
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    """Half of the seeds by day, all at night, before those that are new."""
    seeds = range(first, first + 10, 1 if nightly else 2)
    assert [outcome for seed in seeds if (outcome := run_seed(seed, "broker")).violations] == []


def test_a_seed_is_the_whole_run() -> None:
    one, again, other = (run_seed(seed, "broker").log_hash for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("name", BROKER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """The seed that found it, or another one: what the product does differently makes other stories."""
    mutation = BROKER_MUTATIONS[name]
    with mutation.broken():
        noticed = first_to_fail(mutation.scenario, [mutation.found_by, *range(SEEDS)])
        assert noticed is not None, f"{mutation.rule}: broken, and nobody noticed"
    assert run_seed(noticed.seed, mutation.scenario).violations == ()
