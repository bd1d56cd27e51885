"""Seeds of the simulator, and that it bites. More of them: `./dev sim`."""

from __future__ import annotations

import pytest
from sim.mutations import LEDGER_MUTATIONS
from sim.run import first_to_fail, run_seed
from sim.shrink import shrink
from sim.story import LedgerStory

SEEDS = 1000
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_everything_holds(first: int, nightly: bool) -> None:
    """Half of the seeds by day, all at night, before those that are new."""
    seeds = range(first, first + 40, 1 if nightly else 2)
    assert [outcome for seed in seeds if (outcome := run_seed(seed)).violations] == []


def test_a_seed_is_the_whole_run() -> None:
    one, again, other = (run_seed(seed).log_hash for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize("name", LEDGER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """The seed that found it, or another one: what the product does differently makes other stories of the
    seeds. `./dev sim --mutations` finds them anew."""
    mutation = LEDGER_MUTATIONS[name]
    with mutation.broken():
        noticed = first_to_fail(mutation.scenario, [mutation.found_by, *range(SEEDS)])
        assert noticed is not None, f"{mutation.rule}: broken, and nobody noticed"
    assert run_seed(noticed.seed, mutation.scenario).violations == ()


def test_a_failing_story_is_told_shortly() -> None:
    mutation = LEDGER_MUTATIONS["fence-holds"]
    with mutation.broken():
        noticed = first_to_fail("ledgers", [mutation.found_by, *range(SEEDS)])
        assert noticed is not None
        story = noticed.story
        trace = shrink(story)
        whole = LedgerStory(story, keep_log=True)
        whole.run()
        again = LedgerStory(story, keep_log=True, skipped=trace.skipped)
        assert tuple(again.run()) == trace.violations
    assert tuple(again.world.log or ()) == trace.log
    assert len(trace.log) < len(whole.world.log or ())


def test_a_story_that_holds_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink("0.0")
