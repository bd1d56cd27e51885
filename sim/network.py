"""Messages between nodes: late, out of order, lost, doubled, cut off one way or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sim.world import World


class Node(Protocol):
    """A party that sends and receives messages."""

    name: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """How bad it is; chances between 0 and 1."""

    loss: float = 0.0
    doubling: float = 0.0
    slow: float = 0.0
    """Chance that a message takes up to `slow_us` instead of `usual_us`."""
    usual_us: int = 500
    slow_us: int = 40_000


class Network:
    """Carries calls from one node to another."""

    def __init__(self, world: World, faults: NetworkFaults) -> None:
        self._world = world
        self._chance = world.random.random
        self.faults = faults
        self._cut: set[tuple[str, str]] = set()

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more; the other direction is left as it is."""
        self._cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Undoes `cut`."""
        self._cut.discard((source, target))

    def heal(self) -> None:
        """Everything arrives from now on, once and soon."""
        self._cut.clear()
        self.faults = NetworkFaults()

    def send(self, source: Node, target: Node, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action` at `target`, perhaps."""
        faults, chance, at = self.faults, self._chance, self._world.at
        copies = 1
        if faults.loss and chance() < faults.loss:
            copies = 0
        elif faults.doubling and chance() < faults.doubling:
            copies = 2
        deliver, name = self._deliver, source.name
        for _ in range(copies):
            longest_us = faults.slow_us if chance() < faults.slow else faults.usual_us
            at(int(longest_us * chance()), deliver, name, target, action, arguments)

    def _deliver(
        self, source: str, target: Node, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if target.is_up and not (self._cut and (source, target.name) in self._cut):
            action(*arguments)
