"""The index of delayed entries against a dictionary: never early, never lost, never late."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from magnetar.base.ids import Position
from magnetar.broker.delayed.wheel import TICK_MS, TimeWheel

SECOND = 1_000
YEAR = 365 * 86_400 * SECOND

delays = st.one_of(
    st.integers(-5, 200),
    st.integers(0, 20 * SECOND),
    st.integers(0, 3_600 * SECOND),
    st.integers(0, 10 * YEAR),
    st.just(100 * YEAR),
)


class DelayedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = TimeWheel()
        self.now_ms = 1_700_000_000_000
        self.due: dict[Position, int] = {}
        self.made = 0

    @rule(delay_ms=delays, count=st.integers(1, 30), spread_ms=st.integers(0, 400))
    def add(self, delay_ms: int, count: int, spread_ms: int) -> None:
        for i in range(count):
            self.made += 1
            position = Position(self.made % 3, self.made)
            self.due[position] = self.now_ms + delay_ms + i * spread_ms
            self.index.add(position, self.due[position], self.now_ms)

    @rule(count_max=st.integers(1, 50))
    def pop(self, count_max: int) -> None:
        found = self.index.pop_due(self.now_ms, count_max)
        assert len(found) <= count_max
        for position in found:
            assert self.due.pop(position) <= self.now_ms, "early, or twice"

    @rule(step_ms=delays.filter(lambda ms: 0 <= ms <= YEAR))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(step_ms=st.one_of(st.integers(1, 20 * SECOND), st.integers(1, 3_600 * SECOND), st.just(YEAR)))
    def set_back(self, step_ms: int) -> None:
        self.now_ms -= step_ms

    @rule()
    def wait_as_told(self) -> None:
        due_ms = self.index.next_due_ms()
        assert (due_ms is None) == (not self.due)
        self.now_ms = max(self.now_ms, due_ms or 0)

    @rule()
    def drain(self) -> None:
        while (due_ms := self.index.next_due_ms()) is not None and due_ms <= self.now_ms:
            self.pop(1_000)
        assert all(due_ms + TICK_MS > self.now_ms for due_ms in self.due.values()), "late"

    @invariant()
    def consistent(self) -> None:
        self.index.check()
        assert len(self.index) == len(self.due)

    def teardown(self) -> None:
        for _ in range(10_000):
            due_ms = self.index.next_due_ms()
            if due_ms is None:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.pop(100)
        far = [due_ms for due_ms in self.due.values() if due_ms < self.now_ms]
        assert not far


TestDelayed = DelayedMachine.TestCase
TestDelayed.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_what_became_due_and_was_not_taken_waits_again_when_the_clock_is_set_back() -> None:
    """An hour ahead for a moment: a consumer without permits would get all of it early, later."""
    index = TimeWheel()
    due = {Position(1, i): 1_000_000 + i * 60_000 for i in range(60)}
    for position, due_ms in due.items():
        index.add(position, due_ms, 0)
    taken: list[Position] = []
    while not taken:
        taken = index.pop_due(4_600_000, 1)
    now_ms = 1_000_000 + TICK_MS
    while len(index):
        index.check()
        for position in index.pop_due(now_ms, 1_000):
            assert due[position] <= now_ms < due[position] + 2 * TICK_MS
        now_ms = max(now_ms, index.next_due_ms() or 0)


def test_a_large_slot_is_divided_over_several_calls() -> None:
    index = TimeWheel()
    for i in range(20_000):
        index.add(Position(1, i), 60_000 + i, 0)
    first = index.next_due_ms()
    assert first is not None
    assert 0 < first < 60_000
    assert index.pop_due(first, 10) == []
    assert index.next_due_ms() == 0, "more of the slot waits to be divided"
    found: list[Position] = []
    now_ms = first
    while len(index):
        index.check()
        found += index.pop_due(now_ms, 1_000)
        now_ms = max(now_ms, index.next_due_ms() or 0)
    assert sorted(found) == [Position(1, i) for i in range(20_000)]


def test_an_entry_takes_at_most_16_bytes_of_slot() -> None:
    index = TimeWheel()
    for i in range(1_000):
        index.add(Position(7, i), 10**12, 0)
    assert sum(slot.itemsize * len(slot) for slot in index._slots.values()) == 16_000
