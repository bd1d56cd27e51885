"""Seeds of simulated brokers that keep their load even, and that they bite.

More of them: `./dev sim --scenario balance`.
"""

from __future__ import annotations

import pytest
from sim.balance.mutations import BALANCE_MUTATIONS

from support.seeds import check_noticed, is_the_whole_run, outcome_of

SEEDS = 60
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("seed", range(4))
def test_everything_holds(seed: int) -> None:
    assert outcome_of(seed, "balance").violations == ()


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "balance")


@pytest.mark.parametrize("name", BALANCE_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(BALANCE_MUTATIONS[name], range(SEEDS))
