"""A seed: the lives of some ledgers, or the life of a cluster, of a broker, or of transactions."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

from sim import steps
from sim.balance.story import BalanceStory
from sim.broker.story import BrokerStory
from sim.cluster.story import ClusterStory
from sim.owners.story import OwnersStory
from sim.several.story import SeveralStory
from sim.story import LedgerStory, Violation
from sim.transactions.story import TransactionStory
from sim.world import World

SCENARIOS: Final = ("ledgers", "cluster", "broker", "owners", "balance", "transactions", "several")
LEDGERS: Final = 4
"""Stories of a seed of ledgers."""
_CLUSTER: Final = "c"
"""Before the number of a seed: the name of its cluster's story."""
_BROKER: Final = "b"
"""The same of its broker's."""
_OWNERS: Final = "o"
"""The same of its brokers' that share a cluster."""
_BALANCE: Final = "e"
"""The same of its brokers' that keep their load even."""
_TRANSACTIONS: Final = "t"
"""The same of its transactions'."""
_SEVERAL: Final = "s"
"""The same of its transactions' of several brokers."""

_LETTERS: Final = {
    "cluster": _CLUSTER,
    "broker": _BROKER,
    "owners": _OWNERS,
    "balance": _BALANCE,
    "transactions": _TRANSACTIONS,
    "several": _SEVERAL,
}


class Story(Protocol):
    """One run of one seed."""

    world: World
    planned: int
    """How many events were planned; after `run`."""

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    violations: tuple[Violation, ...]
    story: str
    """The name of the story that failed; of the last one when none did."""
    log_hash: str
    """Of everything that happened: equal for every run of the seed."""


def story_of(name: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> Story:
    """The story of that name, not begun. `skipped`: numbers of planned events that do not happen."""
    kinds: dict[str, type[ClusterStory | BrokerStory | OwnersStory | TransactionStory]] = {
        _CLUSTER: ClusterStory,
        _BROKER: BrokerStory,
        _OWNERS: OwnersStory,
        _BALANCE: BalanceStory,
        _TRANSACTIONS: TransactionStory,
        _SEVERAL: SeveralStory,
    }
    kind = kinds.get(name[0], LedgerStory)
    return kind(name, keep_log=keep_log, skipped=skipped)


def run_seed(seed: int, scenario: str = "ledgers") -> Outcome:
    """Runs a seed to its end, or to the first story in which something did not hold."""
    if scenario == "ledgers":
        names = [f"{seed}.{part}" for part in range(LEDGERS)]
    else:
        names = [f"{_LETTERS[scenario]}{seed}"]
    digest = blake2b(digest_size=16)
    violations: list[Violation] = []
    collects = gc.isenabled()
    # What a story leaves goes at its end, all at once: a tenth of the time.
    gc.disable()
    try:
        for name in names:
            story = story_of(name)
            # What the garbage collector ended of an earlier story stands in the middle of a step.
            steps.forget()
            try:
                violations = story.run()
            except AssertionError as error:
                # The product itself notices: a `check()` or an assertion of it.
                violations = [Violation("assertion", str(error))]
                steps.forget()
            digest.update(story.world.log_hash.encode())
            if violations:
                break
    finally:
        if collects:
            gc.enable()
    return Outcome(seed, tuple(violations), name, digest.hexdigest())


def first_to_fail(scenario: str, seeds: Iterable[int]) -> Outcome | None:
    """The first of the seeds in which something does not hold."""
    for seed in seeds:
        outcome = run_seed(seed, scenario)
        if outcome.violations:
            return outcome
        # A story of transactions leaves a hundred megabytes, which are in no hurry to be collected.
        gc.collect()
    return None
