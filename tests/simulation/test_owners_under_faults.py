"""Seeds of simulated brokers that share a namespace, and that they bite.

More of them: `./dev sim --scenario owners`.
"""

from __future__ import annotations

import pytest
from sim.owners.mutations import OWNER_MUTATIONS

from support.seeds import check_noticed, is_the_whole_run, outcome_of

SEEDS = 60
"""In so many every broken rule must be noticed."""
FOUND = (126, 225, 335, 397, 446)
"""Seeds that found faults: a split bundle whose record no broker gave up; a record that was taken away while
it was claimed; the record of a claim whose answer was lost, of a bundle that was split."""


@pytest.mark.parametrize("seed", [*range(8), *FOUND])
def test_everything_holds(seed: int) -> None:
    assert outcome_of(seed, "owners").violations == ()


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "owners")


@pytest.mark.parametrize("name", OWNER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(OWNER_MUTATIONS[name], range(SEEDS))
