"""A seed: the lives of some ledgers, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from sim.story import LedgerStory, Violation

LEDGERS: Final = 4
"""Stories of a seed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    violations: tuple[Violation, ...]
    story: str
    """The name of the story that failed; of the last one when none did."""
    log_hash: str
    """Of everything that happened: equal for every run of the seed."""


def run_seed(seed: int) -> Outcome:
    """Runs a seed to its end, or to the first story in which something did not hold."""
    digest = blake2b(digest_size=16)
    name = ""
    for part in range(LEDGERS):
        name = f"{seed}.{part}"
        story = LedgerStory(name)
        violations = story.run()
        digest.update(story.world.log_hash.encode())
        if violations:
            return Outcome(seed, tuple(violations), name, digest.hexdigest())
    return Outcome(seed, (), name, digest.hexdigest())
