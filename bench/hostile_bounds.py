"""What each story of `bench hostile` is held to.

A client's times depend on the machine, so p99 beside an attack is compared with p99 alone in the same run.
Alone counts as `ALONE_MS_MIN` at least, because a ratio to half a millisecond says nothing. Processor time of
a turn is told with `--steps` only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ALONE_MS_MIN: Final = 5.0
"""Milliseconds of p99 alone below which a smaller one does not lower the bound."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Most that a story may cost others."""

    p99_ratio: float = 4.0
    """p99 beside the attack, as a multiple of p99 alone."""
    grown_mb: float = 64.0
    """Memory of the attacked process after the attack, beyond that before it."""
    turn_ms: float = 20.0
    """Processor time of the longest turn of the event loop."""
    gc_ms: float = 20.0
    """The longest garbage collection."""

    def told(self) -> str:
        """The bound in a few words."""
        return (
            f"p99 {self.p99_ratio:g} x alone, {self.grown_mb:g} MB more, "
            f"turn {self.turn_ms:g} ms, GC {self.gc_ms:g} ms"
        )

    def broken(self, found: Mapping[str, float]) -> list[str]:
        """What was measured beyond the bound, in words; what was not measured is within it."""
        p99_ms_max = self.p99_ratio * max(ALONE_MS_MIN, found["alone_p99_ms"])
        compared = {
            "p99 beside, ms": (found["beside_p99_ms"], p99_ms_max),
            "more memory, MB": (found["after_mb"] - found["before_mb"], self.grown_mb),
            "longest turn, ms": (found.get("longest_turn_ms", math.nan), self.turn_ms),
            "longest collection, ms": (found.get("gc_max_ms", math.nan), self.gc_ms),
        }
        return [
            f"{what}: {value:.1f}, {most:.1f} are allowed"
            for what, (value, most) in compared.items()
            if value > most
        ]


BOUNDS: Final[dict[str, Bound]] = {
    "calls": Bound(grown_mb=192),
    "wide-lookups": Bound(p99_ratio=10, grown_mb=128),
    "topics": Bound(p99_ratio=8),
    "unacked": Bound(p99_ratio=6, grown_mb=192),
    "subscriptions": Bound(grown_mb=256),
    "subscription-properties": Bound(p99_ratio=8, grown_mb=512),
    "message-properties": Bound(grown_mb=128),
    "bombs": Bound(p99_ratio=10, grown_mb=256),
    "giant-http": Bound(p99_ratio=6),
    "slow-https": Bound(p99_ratio=6, grown_mb=320),
    "bookie-start-tls": Bound(grown_mb=128),
    "bookie-garbage": Bound(grown_mb=320),
    "bookie-large-reads": Bound(grown_mb=256),
}
"""Stories that cost more than others: each connection, subscription or message that they may have takes
memory."""


def bound_of(story: str) -> Bound:
    """The bound of a story."""
    return BOUNDS.get(story, Bound())
