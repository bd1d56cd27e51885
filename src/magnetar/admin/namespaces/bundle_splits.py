"""Computes where a bundle is split (pure).

Source: Pulsar's split algorithms (NamespaceBundleSplitAlgorithm) and the bundle types LARGEST and HOT of
its tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.admin.calls.errors import BadRequestError
from magnetar.broker.balance.settings import SplitAlgorithm
from magnetar.broker.balance.splitting import balanced, middle
from magnetar.broker.errors import PreconditionFailedError

RANGE: Final = SplitAlgorithm.RANGE.value
TOPIC_COUNT: Final = SplitAlgorithm.TOPIC_COUNT.value
POSITIONS: Final = SplitAlgorithm.POSITIONS.value
ALGORITHMS: Final = tuple(each.value for each in SplitAlgorithm)

LARGEST: Final = "LARGEST"
"""Text in place of a bundle's bounds: the bundle with the most topics."""
HOT: Final = "HOT"
"""Text in place of a bundle's bounds: the bundle with the most bytes per second in and out."""


def cuts(
    algorithm: str,
    bounds: tuple[int, int],
    *,
    positions: Sequence[int],
    topics: Mapping[int, float],
) -> list[int]:
    """New bounds within `bounds`; [] when the algorithm finds none, as for a single topic.

    Args:
        algorithm: one of ALGORITHMS, "" for Pulsar's default, RANGE.
        positions: the caller's positions, for POSITIONS; without `algorithm` they select POSITIONS.
        topics: load of the topics by their hash, for TOPIC_COUNT and FLOW.

    Raises PreconditionFailedError for an unknown algorithm, or a bundle that is one hash wide;
    BadRequestError for positions outside of the bundle.
    """
    lower, upper = bounds
    algorithm = algorithm or (POSITIONS if positions else RANGE)
    if algorithm not in ALGORITHMS:
        raise PreconditionFailedError(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(ALGORITHMS)}]"
        )
    if upper - lower < 2:
        raise PreconditionFailedError(f"0x{lower:08x}_0x{upper:08x} cannot be split: it is one hash wide")
    if algorithm == POSITIONS:
        if not positions or not all(lower < each < upper for each in positions):
            raise BadRequestError(f"boundaries must be a list of numbers between {lower} and {upper}")
        return sorted(set(positions))
    if algorithm == RANGE:
        return [(lower + upper) // 2]
    found = middle(sorted(topics)) if algorithm == TOPIC_COUNT else balanced(topics)
    return [found] if found is not None and lower < found < upper else []


def chosen(bundles: Mapping[tuple[int, int], float]) -> tuple[int, int]:
    """The bundle with the largest weight; of several the first.

    Raises PreconditionFailedError when all weights are 0.
    """
    best = max(sorted(bundles), key=lambda bounds: bundles[bounds], default=None)
    if best is None or not bundles[best]:
        raise PreconditionFailedError("no bundle of the namespace has a topic, so there is none to choose")
    return best
