"""Seeds of the simulator: each runs once with all rules in force, whichever tests ask, and notices what is
broken."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from sim.breaking import Mutation
from sim.run import Outcome, first_to_fail, run_seed


@functools.cache
def outcome_of(seed: int, scenario: str) -> Outcome:
    """What comes of a seed when every rule is in force: the same in each run, so there is one."""
    return run_seed(seed, scenario)


def failing(seeds: Iterable[int], scenario: str) -> list[Outcome]:
    """Outcomes of the seeds in which something does not hold."""
    return [outcome for seed in seeds if (outcome := outcome_of(seed, scenario)).violations]


def is_the_whole_run(seed: int, other: int, scenario: str) -> bool:
    """Whether a seed says all that happens: a second run is the same, and that of another seed is not."""
    first = outcome_of(seed, scenario).log_hash
    return run_seed(seed, scenario).log_hash == first != outcome_of(other, scenario).log_hash


def check_noticed(mutation: Mutation, seeds: Iterable[int], *, held: bool = True) -> None:
    """The seed that found a broken rule notices it, or another one: what the product does differently makes
    other stories of all seeds. `./dev sim --renew` finds seeds anew. With the rule the seed holds; `held`:
    whether that is checked, for it takes as long again."""
    with mutation.broken():
        noticed = first_to_fail(mutation.scenario, [mutation.found_by, *seeds])
        assert noticed is not None, f"{mutation.rule}: broken, and not noticed"
    assert not held or outcome_of(noticed.seed, mutation.scenario).violations == ()
