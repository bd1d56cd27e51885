"""Makes a failing story short: leaves out planned events as long as it still fails."""

from __future__ import annotations

from dataclasses import dataclass

from sim.run import Story, story_of
from sim.story import Violation


@dataclass(frozen=True, slots=True)
class Trace:
    """A short story that fails."""

    name: str
    skipped: frozenset[int]
    violations: tuple[Violation, ...]
    log: tuple[str, ...]


def shrink(name: str) -> Trace:
    """The shortest form of the story that is found by leaving out one planned event after the other.

    Raises ValueError when the whole story does not fail.
    """
    story = story_of(name, keep_log=True)
    trace = _trace(name, story, frozenset())
    if trace is None:
        raise ValueError(f"story {name} does not fail")
    found = True
    while found:
        found = False
        for number in reversed(range(story.planned)):
            if number in trace.skipped:
                continue
            skipped = trace.skipped | {number}
            shorter = _trace(name, story_of(name, keep_log=True, skipped=skipped), skipped)
            # What fails otherwise is another story.
            if shorter is not None and shorter.violations[0].rule == trace.violations[0].rule:
                trace, found = shorter, True
    return trace


def _trace(name: str, story: Story, skipped: frozenset[int]) -> Trace | None:
    violations = story.run()
    if not violations:
        return None
    return Trace(name, skipped, tuple(violations), tuple(story.world.log or ()))
