"""Seeds that notice broken rules, looked for anew: `./dev sim --renew`.

What the product does differently makes other stories of all seeds. A test whose seed no longer notices its
broken rule goes through seeds from 0 on until one does, in each run, which can take minutes. So a change that
moves the order of events ends with this command, which writes the new seeds into the files of mutations.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

from sim import steps
from sim.breaking import Mutation
from sim.run import run_seed

PLACES: Final = {
    "ledgers": Path("sim/mutations.py"),
    **{
        name: Path(f"sim/{name}/mutations.py")
        for name in ("cluster", "broker", "owners", "balance", "transactions", "several")
    },
}
"""File of each scenario's mutations, from the root of the project."""

CHOICE: Final = 3
"""Seeds of which the one that costs least is taken."""


class Found(NamedTuple):
    """A seed that notices a broken rule, and holds without it."""

    cpu_s: float
    """What both runs cost."""
    seed: int


def noticing(mutation: Mutation, seeds: Iterable[int]) -> Iterator[Found]:
    """Those of the seeds, with their costs."""
    for seed in seeds:
        began = time.process_time()
        with mutation.broken():
            is_noticed = bool(run_seed(seed, mutation.scenario).violations)
        if is_noticed and not run_seed(seed, mutation.scenario).violations:
            yield Found(time.process_time() - began, seed)
        gc.collect()


def renewed(mutation: Mutation, seeds: Iterable[int], *, anew: bool) -> Found | None:
    """The known seed where it still does, or the cheapest of the first ones; None without one. `anew`: the
    known one is one of several."""
    steps.install()
    known = noticing(mutation, [mutation.found_by])
    if not anew:
        return next(known, None) or min(islice(noticing(mutation, seeds), CHOICE), default=None)
    others = noticing(mutation, (seed for seed in seeds if seed != mutation.found_by))
    return min(islice(chain(known, others), CHOICE), default=None)


def with_seed(text: str, name: str, seed: int) -> str:
    """A file of mutations in which another seed finds one of them. Raises ValueError where it has none
    of that name."""
    of_one = rf'("{re.escape(name)}": Mutation\((?:(?!Mutation\().)*?found_by=)\d+'
    changed, count = re.subn(of_one, rf"\g<1>{seed}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{count} mutations {name} with found_by=")
    return changed
