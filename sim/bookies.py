"""Nodes that hold entries: the bookie's rules over a simulated disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from magnetar.bookie.served import Output, ServedAnswer, Waited, Write
from magnetar.bookie.serving import BookieLedgers
from magnetar.wire.bookkeeper.requests import AddRun, Read
from magnetar.wire.bookkeeper.status import Status
from sim.disk import Disk
from sim.network import Network, Node
from sim.rules import RulesInForce
from sim.world import World


class Asker:
    """Where an answer goes."""

    __slots__ = ("action", "node")

    def __init__(self, node: Node, action: Callable[..., None]) -> None:
        self.node = node
        self.action = action


class BookieNode:
    """One bookie, with its crashes."""

    def __init__(self, world: World, network: Network, name: str, *, stalls: float) -> None:
        """`stalls`: how often its disk does."""
        self.name = name
        self.is_up = True
        self.is_lost = False
        self._world = world
        self._network = network
        self.disk = Disk(world, self._durable, self._failed, stalls=stalls)
        self._ledgers = BookieLedgers(self.disk, rules=RulesInForce.serving)

    def add(self, asker: Asker, run: AddRun) -> None:
        """A client's adds arrive."""
        self._do(self._ledgers.add(asker, run))

    def read(self, asker: Asker, request: Read) -> None:
        """A client's read arrives."""
        self._do(self._ledgers.read(asker, request))

    def _durable(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            self._do(self._ledgers.durable(ticket))

    def _failed(self, tickets: Sequence[int], status: Status) -> None:
        for ticket in tickets:
            self._do(self._ledgers.failed(ticket, status))
        if status is Status.IO_ERROR:
            # It is unknown what of it is on the device: only a start looks.
            self.crash()

    def set_full(self, *, full: bool) -> None:
        """The disk has no room, or has some again."""
        self._world.note(self.name, "is full" if full else "has room")
        self.disk.is_full = self._ledgers.read_only = full

    def _do(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, Write):
                self.disk.write(output)
            elif isinstance(output, ServedAnswer):
                self._answer(output)
            elif isinstance(output, Waited):
                self._do(self._ledgers.read(output.wait.asker, output.wait.request))

    def _answer(self, answer: ServedAnswer) -> None:
        asker: Any = answer.asker
        self._network.send(self, asker.node, asker.action, answer.response)

    def crash(self) -> None:
        """Power off."""
        if self.is_up:
            self._world.note(self.name, "crashes")
            self.is_up = False
            self.disk.crash()

    def restart(self) -> None:
        """Power on; knows what was on its disk."""
        if not self.is_up and not self.is_lost:
            self._world.note(self.name, "is back")
            self.is_up = True
            self._ledgers = BookieLedgers(self.disk, self.disk.stored_ledgers(), rules=RulesInForce.serving)
            self._ledgers.read_only = self.disk.is_full

    def lose(self) -> None:
        """Gone for ever, with its disk."""
        self._world.note(self.name, "is lost for ever")
        self.is_up = False
        self.is_lost = True
        self.disk.lose_everything()
