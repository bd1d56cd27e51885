"""Seeds of whole clusters, and that they bite. More of them: `./dev sim --scenario cluster`."""

from __future__ import annotations

import pytest
from sim.cluster.mutations import CLUSTER_MUTATIONS
from sim.run import first_to_fail, story_of
from sim.shrink import shrink

from support.seeds import check_noticed, failing, is_the_whole_run, outcome_of

SEEDS = 1000
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_everything_holds(first: int, nightly: bool) -> None:
    """Half of the seeds by day, all at night, before those that are new."""
    seeds = range(first, first + 10, 1 if nightly else 2)
    assert failing(seeds, "cluster") == []


# Seeds that failed once.
@pytest.mark.parametrize(
    "seed",
    [
        # The audit of a lost bookie passed; then a client that had not heard of the loss gave that bookie a
        # ledger. No audit looked again before the next day.
        397,
    ],
)
def test_what_failed_once_holds(seed: int) -> None:
    assert outcome_of(seed, "cluster").violations == ()


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "cluster")


@pytest.mark.parametrize("name", CLUSTER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(CLUSTER_MUTATIONS[name], range(SEEDS))


def test_a_failing_story_is_told_shortly() -> None:
    mutation = CLUSTER_MUTATIONS["owners-fence"]
    with mutation.broken():
        noticed = first_to_fail("cluster", [mutation.found_by, *range(SEEDS)])
        assert noticed is not None
        name = noticed.story
        trace = shrink(name)
        whole = story_of(name, keep_log=True)
        whole.run()
        again = story_of(name, keep_log=True, skipped=trace.skipped)
        assert tuple(again.run()) == trace.violations
    assert tuple(again.world.log or ()) == trace.log
    assert len(trace.skipped) > 0
