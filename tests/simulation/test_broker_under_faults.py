"""Seeds of the simulated broker, and that it bites. More of them: `./dev sim --scenario broker`."""

from __future__ import annotations

import pytest
from sim.broker.mutations import BROKER_MUTATIONS

from support.seeds import check_noticed, failing, is_the_whole_run

SEEDS = 200
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    """Half of the seeds by day, all at night, before those that are new."""
    seeds = range(first, first + 10, 1 if nightly else 2)
    assert failing(seeds, "broker") == []


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "broker")


@pytest.mark.parametrize("name", BROKER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(BROKER_MUTATIONS[name], range(SEEDS))
