"""A client of several brokers: its commands go to the broker that serves what they name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEvent
from sim.several.brokers import SharedLife
from sim.transactions.clients import Home
from sim.transactions.history import History, Sent
from sim.transactions.life import LifeLine
from sim.world import World

if TYPE_CHECKING:
    from sim.several.brokers import Table

_HEAD = 8
"""Bytes before a command."""


class SharedHome(Home):
    """Where clients find brokers."""

    table: Table
    apart = True

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self.lives: list[SharedLife] = []
        """Those that were started last."""

    @property
    def serves(self) -> bool:
        return any(life.ready for life in self.lives)

    def connect(self, name: str, hear: Callable[[object], None], lost: Callable[[], None]) -> Router:
        return Router(self, name, hear, lost)

    def may_have_dropped(self, sent: Sent, begun_us: int) -> bool:
        """The broker that it was sent to does not have the topic any more, or not since then: its producer is
        not attached."""
        router = sent.line
        assert isinstance(router, Router)
        return not router.is_attached(sent.topic)

    def find(self, key: str) -> SharedLife | None:
        """The broker that a look-up names; None: the client has to look again."""
        random = self.world.random
        ready = [life for life in self.lives if life.ready]
        former = [life for life in ready if key in life.held and self.table.owner(key) is not life]
        if former and random.random() < 0.5:
            # It looked it up before.
            return random.choice(former)
        owner = self.table.owner(key)
        if owner is not None:
            return owner if owner.ready and key in owner.held else None
        running = [life for life in ready if life.process.held is None and key not in life.held]
        if not running:
            return None
        chosen = random.choice(running)
        self.table.claim(key, chosen)
        return chosen


class Router:
    """The connections of one client. When one ends, all do."""

    def __init__(
        self, home: SharedHome, name: str, hear: Callable[[object], None], lost: Callable[[], None]
    ) -> None:
        self.closed = False
        self._home, self._name, self._hear, self._lost = home, name, hear, lost
        self._lines: dict[int, LifeLine] = {}
        self._topics: dict[int, str] = {}
        """Topics of consumers."""
        self._attached: dict[tuple[str, int], SharedLife | None] = {}
        self._producers: dict[str, SharedLife | None] = {}
        """Brokers of producers, by topic."""

    def say(self, *frames: pb.BaseCommand | bytes) -> None:
        for frame in frames:
            if self.closed:
                return
            life = self._life(frame if isinstance(frame, pb.BaseCommand) else _command(frame))
            if life is None or not life.process.is_up:
                self.close("its broker is away")
                return
            line = self._lines.get(id(life))
            if line is None:
                hear = partial(self._heard, life)
                line = self._lines[id(life)] = LifeLine(life, self._name, hear, self._ended)
            line.say(frame)

    def _heard(self, life: SharedLife, event: object) -> None:
        # A former owner gives messages that the subscription has had, until it hears that it is one. No
        # store can keep it from that, and a client does not know.
        if not isinstance(event, MessageEvent) or self._topics.get(event.consumer_id) in life.owned:
            self._hear(event)

    def _life(self, command: pb.BaseCommand) -> SharedLife | None:
        kind = pb.BaseCommand.Type.Name(command.type)
        if kind == "PRODUCER":
            return self._attach("producer", command.producer.producer_id, command.producer.topic)
        if kind == "SUBSCRIBE":
            self._topics[command.subscribe.consumer_id] = command.subscribe.topic
            return self._attach("consumer", command.subscribe.consumer_id, command.subscribe.topic)
        if kind == "SEND":
            return self._attached.get(("producer", command.send.producer_id))
        if kind == "NEW_TXN":
            return self._coordinator(command.newTxn.tc_id)
        for body in (command.addPartitionToTxn, command.addSubscriptionToTxn, command.endTxn):
            if body.HasField("txnid_most_bits"):
                return self._coordinator(body.txnid_most_bits)
        for field, body in command.ListFields():
            if field.name != "type":
                return self._attached.get(("consumer", body.consumer_id))
        raise AssertionError(kind)

    def _attach(self, kind: str, number: int, topic: str) -> SharedLife | None:
        life = self._attached[kind, number] = self._home.find(topic)
        if kind == "producer":
            self._producers[topic] = life
        return life

    def is_attached(self, topic: str) -> bool:
        """Whether its producer of the topic is where messages become part of the topic."""
        life = self._producers.get(topic)
        if life is None or topic not in life.owned or not life.process.is_up:
            return False
        loaded = life.broker.topics.get(topic)
        line = self._lines.get(id(life))
        return (
            loaded is not None
            and not loaded.closed
            and line is not None
            and any(each.connection is line.session for each in loaded.producers.values())
        )

    def _coordinator(self, number: int) -> SharedLife | None:
        return self._home.find(str(ASSIGN.with_partition(number)))

    def _ended(self) -> None:
        if not self.closed:
            self.close("one of its brokers is gone")
        self._lost()

    def close(self, reason: str) -> None:
        self.closed = True
        for line in list(self._lines.values()):
            line.close(reason)
        self._lost()


def _command(frame: bytes) -> pb.BaseCommand:
    size = int.from_bytes(frame[4:_HEAD], "big")
    return pb.BaseCommand.FromString(frame[_HEAD : _HEAD + size])
