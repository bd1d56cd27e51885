"""Seeds of the simulated transactions, and that they bite. More: `./dev sim --scenario transactions`."""

from __future__ import annotations

import pytest
from sim.transactions.mutations import TRANSACTION_MUTATIONS

from support.seeds import check_noticed, failing, is_the_whole_run

SEEDS = 60
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    """A seed takes a second: eight of them by day, beside those of broken rules; forty at night, before those
    that are new."""
    seeds = range(first, first + (10 if nightly else 2))
    assert failing(seeds, "transactions") == []


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "transactions")


@pytest.mark.parametrize("name", TRANSACTION_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(TRANSACTION_MUTATIONS[name], range(SEEDS))
