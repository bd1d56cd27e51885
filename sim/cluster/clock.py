"""The clock of a simulated process."""

from __future__ import annotations

from typing import Final

from sim.world import World

_EPOCH_MS: Final = 1_700_000_000_000


class WorldClock:
    """A `Clock` that shows the world's time."""

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return _EPOCH_MS + self._world.now_us // 1_000

    def monotonic_ms(self) -> float:
        return self._world.now_us / 1_000

    def settled_ms(self) -> int:
        return self.now_ms()
