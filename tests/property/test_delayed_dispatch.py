"""Dispatchers with delayed entries: never early, never lost, and nothing waits behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.delayed.index import DelayedIndex
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from support.dispatch_machines import DispatchMachine, Redelivering, key_shared


class Delays:
    """An entry is its key and, when it is delayed, its due time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.loading = False
        self.index = DelayedIndex()

    @property
    def count(self) -> int:
        return len(self.index)

    @property
    def last_held(self) -> Position:
        return self.index.last_held

    def next_free(self, position: Position) -> Position:
        return self.index.next_free(position)

    def discard(self, positions: Sequence[Position]) -> None:
        self.index.discard(positions)

    def screen(self, entries: Sequence[bytes]) -> bool:
        return any(len(entry) > 1 for entry in entries)

    def hold(self, run: EntryRun, start: int, stop: int, is_acked: Callable[[Position], bool] | None) -> int:
        offset = start
        while offset < stop:
            position = Position(run.ledger_id, run.first_entry + offset)
            if (is_acked and is_acked(position)) or not self._hold(position, run.entries[offset]):
                break
            offset += 1
        return offset

    def _hold(self, position: Position, entry: bytes) -> bool:
        if position in self.index:
            return True
        due_ms = int(entry[1:] or b"0")
        if due_ms <= self.now_ms:
            return False
        self.index.add(position, due_ms, self.now_ms)
        return True

    def take_due(self, count_max: int) -> list[Position]:
        return self.index.pop_due(self.now_ms, count_max)


class DelayedMachine(DispatchMachine):
    def __init__(self) -> None:
        self.delays = Delays()
        super().__init__()

    @rule(
        keys=st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=8),
        delay_ms=st.sampled_from([1, 50, 1_000, 20_000, 10**9]),
    )
    def publish_delayed(self, keys: list[bytes], delay_ms: int) -> None:
        self.log.extend(b"%s%d" % (key, self.delays.now_ms + delay_ms + i) for i, key in enumerate(keys))
        self.pump()

    @rule(step_ms=st.integers(1, 30_000))
    def wait(self, step_ms: int) -> None:
        self.delays.now_ms += step_ms
        self.pump()

    def on_sent(self, consumer: object, position: Position, key: bytes) -> None:
        assert int(key[1:] or b"0") <= self.delays.now_ms, "early"
        super().on_sent(consumer, position, key)  # type: ignore[arg-type]  # it is a Consumer

    def teardown(self) -> None:
        # What is not delayed comes while the delayed wait.
        self.drain()
        late = {Position(0, i) for i, entry in enumerate(self.log) if len(entry) > 1}
        missing = {Position(0, i) for i in range(len(self.log))} - self.cursor.done
        assert missing <= late, "it waited behind delayed entries"
        while (due_ms := self.delays.index.next_due_ms()) is not None:
            self.delays.now_ms = max(self.delays.now_ms, due_ms)
            self.drain()
        super().teardown()


class SharedMachine(DelayedMachine, Redelivering):
    def make(self) -> Dispatcher:
        return SharedDispatcher(self.cursor, Position(0, 0), self.delays)


class KeySharedMachine(DelayedMachine):
    """A key is never in flight at two consumers, delayed or not; the order is that of delivery times."""

    def make(self) -> Dispatcher:
        return key_shared(self.cursor, delays=self.delays)

    def on_sent(self, consumer: object, position: Position, key: bytes) -> None:
        for other, held in self.sent.items():
            if other is not consumer:
                assert all(self.log[each.entry_id][:1] != key[:1] for each in held), "key in flight twice"
        super().on_sent(consumer, position, key)


TestShared = SharedMachine.TestCase
TestKeyShared = KeySharedMachine.TestCase
for _case in (TestShared, TestKeyShared):
    _case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
del _case
