"""Seeds of simulated brokers that share a namespace, and that they bite.

More of them: `./dev sim --scenario owners`.
"""

from __future__ import annotations

import pytest
from sim.owners.mutations import OWNER_MUTATIONS
from sim.run import first_to_fail, run_seed

SEEDS = 60
"""In so many every broken rule must be noticed."""
FOUND = (126, 225, 335, 397, 446)
"""Seeds that found faults: a split bundle whose record no broker gave up; a record that was taken away while
it was claimed; the record of a claim whose answer was lost, of a bundle that was split."""


@pytest.mark.parametrize("seed", [*range(8), *FOUND])
def test_everything_holds(seed: int) -> None:
    assert run_seed(seed, "owners").violations == ()


def test_a_seed_is_the_whole_run() -> None:
    one, again, other = (run_seed(seed, "owners").log_hash for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("name", OWNER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """The seed that found it, or another one: what the product does differently makes other stories."""
    mutation = OWNER_MUTATIONS[name]
    with mutation.broken():
        noticed = first_to_fail(mutation.scenario, [mutation.found_by, *range(SEEDS)])
        assert noticed is not None, f"{mutation.rule}: broken, and nobody noticed"
    assert run_seed(noticed.seed, mutation.scenario).violations == ()
