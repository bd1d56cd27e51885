"""Figures of a history: messages and errors by second, latencies, pauses. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chaos.history import Event


@dataclass
class Second:
    """One second of a run."""

    acked: int = 0
    received: int = 0
    errors: int = 0
    latencies_s: list[float] = field(default_factory=list)


def by_second(found: Iterable[Event], began_s: float) -> list[Second]:
    """What happened in each second since the begin. The latency of a message belongs to the second of its
    receipt."""
    seconds: dict[int, Second] = {}
    sent: dict[object, float] = {}
    for event in found:
        second = seconds.setdefault(max(0, int(event.at_s - began_s)), Second())
        if event.kind == "sent":
            sent[event.topic, event.value] = event.at_s
        elif event.kind == "acked":
            second.acked += 1
            second.latencies_s.append(event.at_s - sent[event.topic, event.value])
        elif event.kind == "received":
            second.received += 1
        elif event.kind in ("error", "refused"):
            second.errors += 1
    return [seconds.get(number, Second()) for number in range(max(seconds, default=-1) + 1)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the values do not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def pauses(found: Iterable[Event]) -> dict[str, float]:
    """Longest time between two receipts, in seconds, by topic."""
    last: dict[str, float] = {}
    longest: dict[str, float] = {}
    for event in found:
        if event.kind == "acked":
            gap = event.at_s - last.get(event.topic, event.at_s)
            longest[event.topic] = max(longest.get(event.topic, 0.0), gap)
            last[event.topic] = event.at_s
    return longest


def told(found: Iterable[Event]) -> Counter[str]:
    """What clients were told in the way of errors, and how often."""
    return Counter(f"{event.kind}: {event.note}" for event in found if event.kind in ("error", "refused"))
