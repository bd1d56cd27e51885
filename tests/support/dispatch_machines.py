"""A model of a subscription that drives a dispatcher: a log of keys, a set of acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Delays, Dispatcher
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher


class Acks:
    """The cursor as a set."""

    def __init__(self) -> None:
        self.done: set[Position] = set()
        self.given_back: dict[Position, int] = {}

    @property
    def mark_delete(self) -> Position:
        last = -1
        while Position(0, last + 1) in self.done:
            last += 1
        return Position(0, last)

    @property
    def has_holes(self) -> bool:
        return bool(self.done)

    def is_acked(self, position: Position) -> bool:
        return position in self.done

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        return None

    def next_unacked(self, position: Position) -> Position:
        while position in self.done:
            position = successor(position)
        return position

    @property
    def has_redeliveries(self) -> bool:
        return bool(self.given_back)

    def may_know_from(self, position: Position) -> bool:
        return any(each >= position for each in (*self.done, *self.given_back))

    def redelivery_count(self, position: Position) -> int:
        return 0 if position in self.done else self.given_back.get(position, 0)

    def redelivered(self, positions: Sequence[Position]) -> None:
        for position in positions:
            self.given_back[position] = self.given_back.get(position, 0) + 1


class Pipe:
    writable = True

    def ask_output(self) -> bool:
        return self.writable


def successor(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def key_shared(
    cursor: Acks,
    *,
    sticky: bool = False,
    allow_out_of_order: bool = False,
    delays: Delays | None = None,
) -> KeySharedDispatcher:
    """From the first entry on; the key is the entry's first byte."""
    return KeySharedDispatcher(
        cursor,
        Position(0, 0),
        sticky=sticky,
        allow_out_of_order=allow_out_of_order,
        hash_of=lambda entry: entry[0] * 331,
        delays=delays,
    )


def failover(cursor: Acks, active_changed: Callable[[Consumer, bool], None]) -> SingleActiveDispatcher:
    """From the first entry on."""
    return SingleActiveDispatcher(
        cursor,
        Position(0, 0),
        failover=True,
        partition=-1,
        successor=successor,
        active_changed=active_changed,
    )


class DispatchMachine(RuleBasedStateMachine):
    """Drives a dispatcher as a subscription does; the log is a list of keys."""

    ordered_by_key = False

    def __init__(self) -> None:
        super().__init__()
        self.log: list[bytes] = []
        self.cursor = Acks()
        self.dispatcher: Dispatcher = self.make()
        self.names = 0
        self.sent: dict[Consumer, list[Position]] = {}

    def make(self) -> Dispatcher:
        raise NotImplementedError

    def read(self, position: Position, entries_max: int) -> list[EntryRun]:
        start = max(0, position.entry_id)
        entries = self.log[start : start + entries_max]
        return [EntryRun(0, start, entries, None, start, 0)] if entries else []

    def pump(self) -> None:
        while (want := self.dispatcher.want()) is not None:
            runs = self.read(want.position, want.entries_max)
            if not runs and not want.replay:
                return
            for each in self.dispatcher.offer(want, runs):
                for offset in each.rows or range(each.start, each.stop):
                    position = Position(0, each.run.first_entry + offset)
                    self.on_sent(each.consumer, position, each.run.entries[offset])

    def on_sent(self, consumer: Consumer, position: Position, key: bytes) -> None:
        assert position not in self.cursor.done
        for other, held in self.sent.items():
            assert position not in held, f"in flight at {other.name} and {consumer.name}"
            if self.ordered_by_key and other is not consumer:
                assert all(self.log[each.entry_id] != key for each in held), "key in flight at two consumers"
        if self.ordered_by_key:
            before = [each for each in self.sent[consumer] if self.log[each.entry_id] == key]
            undelivered = [
                Position(0, i)
                for i in range(position.entry_id)
                if self.log[i] == key
                and Position(0, i) not in self.cursor.done
                and Position(0, i) not in before
            ]
            assert not undelivered, "an earlier entry of the key was passed over"
        self.sent[consumer].append(position)

    @rule(keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=8))
    def publish(self, keys: list[bytes]) -> None:
        self.log.extend(keys)
        self.pump()

    @precondition(lambda self: len(self.sent) < 4)
    @rule(permits=st.integers(0, 5))
    def join(self, permits: int) -> None:
        self.names += 1
        consumer = Consumer(consumer_id=self.names, name=f"c{self.names}", outlet=Pipe(), permits=permits)
        self.sent[consumer] = []
        self.dispatcher.add(consumer)
        self.pump()

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), permits=st.integers(1, 6))
    def flow(self, data: Any, permits: int) -> None:
        data.draw(st.sampled_from(list(self.sent))).permits += permits
        self.pump()

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def ack(self, data: Any) -> None:
        consumer = data.draw(st.sampled_from([each for each, held in self.sent.items() if held]))
        positions = data.draw(st.lists(st.sampled_from(self.sent[consumer]), min_size=1, unique=True))
        self.apply_ack(consumer, positions)
        self.pump()

    def apply_ack(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        self.cursor.done.update(positions)
        self.sent[consumer] = [each for each in self.sent[consumer] if each not in positions]
        self.dispatcher.acked(consumer, positions)

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        consumer = data.draw(st.sampled_from(list(self.sent)))
        del self.sent[consumer]
        self.dispatcher.remove(consumer)
        self.pump()

    @invariant()
    def consistent(self) -> None:
        check = getattr(self.dispatcher, "check", None)
        if check is not None:
            check()

    def teardown(self) -> None:
        """With permits and acknowledgements without end, everything arrives."""
        self.drain()
        assert self.cursor.done == {Position(0, i) for i in range(len(self.log))}

    def drain(self) -> None:
        """Gives permits and acknowledges until nothing comes any more."""
        if not self.sent:
            self.join(permits=0)
        for _ in range(len(self.log) + 2):
            for consumer in list(self.sent):
                consumer.permits += len(self.log) + 1
                self.pump()
                self.apply_ack(consumer, list(self.sent[consumer]))
            self.pump()


class Redelivering(DispatchMachine):
    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def redeliver(self, data: Any) -> None:
        consumer = data.draw(st.sampled_from([each for each, held in self.sent.items() if held]))
        everything = data.draw(st.booleans())
        positions = list(self.sent[consumer])
        if not everything:
            positions = data.draw(st.lists(st.sampled_from(positions), min_size=1, unique=True))
        self.sent[consumer] = [each for each in self.sent[consumer] if each not in positions]
        self.dispatcher.redeliver(consumer, None if everything else positions)
        self.pump()
