"""Seeds of the simulator, and that it bites. More of them: `./dev sim`."""

from __future__ import annotations

import pytest
from sim.mutations import MUTATIONS
from sim.run import run_seed
from sim.shrink import shrink
from sim.story import LedgerStory


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_everything_holds(first: int) -> None:
    assert [outcome for seed in range(first, first + 40) if (outcome := run_seed(seed)).violations] == []


def test_a_seed_is_the_whole_run() -> None:
    hashes = [run_seed(seed).log_hash for seed in (1, 2)]
    assert hashes == [run_seed(seed).log_hash for seed in (1, 2)]
    assert len(set(hashes)) == 2


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """`./dev sim --mutations` finds the seeds anew when the stories have changed."""
    mutation = MUTATIONS[name]
    assert mutation.found_by < 1000
    with mutation.broken():
        assert run_seed(mutation.found_by).violations, f"{mutation.rule}: broken, and nobody noticed"
    assert run_seed(mutation.found_by).violations == ()


def test_a_failing_story_is_told_shortly() -> None:
    mutation = MUTATIONS["fence-holds"]
    with mutation.broken():
        story = run_seed(mutation.found_by).story
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
