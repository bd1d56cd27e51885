"""How much the clients of each topic ask for, and what that costs the broker that serves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from magnetar.base.names import TopicName

RATE_OF_A_POINT: Final = 100.0
"""Messages per second that take a hundredth of a core."""
_STEP: Final = 4
"""Rates are multiples of it: what passes in a quarter of a second is whole."""


class Demand:
    """Messages per second of each topic."""

    def __init__(self, topics: Sequence[TopicName]) -> None:
        self.rates = dict.fromkeys(topics, 0)

    def spread(self, random: Random, points: float) -> None:
        """Divides so many points among the topics, not evenly."""
        kind = random.choice(("even", "steps", "steps", "one"))
        weights = {topic: 1.0 if kind == "even" else random.choice((0.1, 1.0, 4.0)) for topic in self.rates}
        if kind == "one":
            weights[random.choice(list(weights))] = len(weights) / 2
        whole = sum(weights.values())
        for topic, weight in weights.items():
            self.rates[topic] = round(points * RATE_OF_A_POINT * weight / whole / _STEP) * _STEP

    def points(self, topics: Iterable[TopicName]) -> float:
        """Hundredths of a core that these topics take."""
        return sum(self.rates[topic] for topic in topics) / RATE_OF_A_POINT
