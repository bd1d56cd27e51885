"""Which of this broker's bundles are to be split, and where: the decisions (pure).

Each broker decides for its own bundles: it alone knows what each topic has to do. Source: the limits are
Pulsar's, see `settings.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.balance.settings import DEFAULTS, BalanceSettings, SplitAlgorithm
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.policies.bundles import hash_of

_MIB: Final = 1 << 20


class Splitting:
    """The view of one broker."""

    def __init__(self) -> None:
        self.settings: BalanceSettings = DEFAULTS
        self._hits: dict[Bundle, int] = {}
        """Rounds in a row in which a bundle was too large."""

    def look(self, loads: Mapping[Bundle, BundleLoad], counts: Mapping[NamespaceName, int]) -> list[Bundle]:
        """Bundles to be split now, the one with the most to do first.

        Args:
            loads: all bundles of this broker with loaded topics, of one report; a report is looked at once.
            counts: how many bundles each of their namespaces has.
        """
        if not self.settings.split:
            return []
        large = [bundle for bundle, load in loads.items() if self.is_too_large(load)]
        self._hits = {bundle: self._hits.get(bundle, 0) + 1 for bundle in large}
        found = [bundle for bundle in large if self._hits[bundle] >= self.settings.split_hits]
        chosen: list[Bundle] = []
        more: dict[NamespaceName, int] = {}
        for bundle in sorted(found, key=lambda each: (-loads[each].cost, each)):
            count = counts.get(bundle.namespace, 0) + more.get(bundle.namespace, 0)
            if count < self.settings.bundles_max and len(chosen) < self.settings.split_at_once:
                more[bundle.namespace] = more.get(bundle.namespace, 0) + 1
                chosen.append(bundle)
        return chosen

    def is_too_large(self, load: BundleLoad) -> bool:
        """Whether the bundle is above a limit, and has two topics at least."""
        settings = self.settings
        return load.topics > 1 and (
            load.topics > settings.topics_max
            or load.sessions > settings.sessions_max
            or load.rate > settings.rate_max
            or load.size_rate > settings.bandwidth_mib_max * _MIB
        )


def cut(bundle: Bundle, algorithm: SplitAlgorithm, topics: Mapping[TopicName, float]) -> int | None:
    """The first hash of the upper part; None: there is no bound between two topics.

    `topics`: the bundle's loaded topics, each with what it has to do.
    """
    if bundle.upper - bundle.lower < 2:
        return None
    weights: dict[int, float] = {}
    for name, cost in topics.items():
        weights[hash_of(name)] = weights.get(hash_of(name), 0.0) + cost
    match algorithm:
        case SplitAlgorithm.TOPIC_COUNT:
            found = middle(sorted(weights))
        case SplitAlgorithm.FLOW:
            found = balanced(weights)
        case _:
            found = (bundle.lower + bundle.upper) // 2
    return found if found is not None and bundle.lower < found < bundle.upper else None


def upper_part(topics: Mapping[TopicName, float], at: int) -> float:
    """Fraction of the load of these topics whose hash is `at` or higher; 0 when they have none."""
    whole = sum(topics.values())
    return sum(cost for name, cost in topics.items() if hash_of(name) >= at) / whole if whole else 0.0


def middle(hashes: Sequence[int]) -> int | None:
    """A bound between the two halves of the topics, which are sorted; None when there is none."""
    if len(hashes) < 2:
        return None
    before, after = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
    return before + (after - before + 1) // 2


def balanced(weights: Mapping[int, float]) -> int | None:
    """The bound between two topics that divides the load most equally; None when there is none.

    `weights`: load by hash.
    """
    hashes = sorted(weights)
    sums = list(itertools.accumulate(weights[each] for each in hashes))
    if len(hashes) < 2 or not sums[-1]:
        return None
    at = min(range(1, len(hashes)), key=lambda place: abs(2 * sums[place - 1] - sums[-1]))
    return middle(hashes[at - 1 : at + 1])
