"""Seeds of the simulator, and that it bites. More of them: `./dev sim`."""

from __future__ import annotations

import pytest
from sim.mutations import LEDGER_MUTATIONS
from sim.run import first_to_fail
from sim.shrink import shrink
from sim.story import LedgerStory

from support.seeds import check_noticed, failing, is_the_whole_run

SEEDS = 1000
"""In so many every broken rule must be noticed."""


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_everything_holds(first: int, nightly: bool) -> None:
    """Half of the seeds by day, all at night, before those that are new."""
    seeds = range(first, first + 40, 1 if nightly else 2)
    assert failing(seeds, "ledgers") == []


def test_a_seed_is_the_whole_run() -> None:
    assert is_the_whole_run(1, 2, "ledgers")


@pytest.mark.parametrize("name", LEDGER_MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    check_noticed(LEDGER_MUTATIONS[name], range(SEEDS))


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
