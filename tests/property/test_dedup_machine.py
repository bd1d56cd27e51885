"""Deduplication against a model: a log that holds each number once, through crashes at any point.

The machine plays a broker with one topic. Producers send ascending numbers, and send again whatever they
did not hear of, or more. Entries become durable in order; a crash leaves what is durable and the last
stored snapshot; loading replays the rest.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.broker.dedup.dedup_state import DedupLimits, DedupState, Span

NAMES = ["a", "b", "c", "d"]
LIMITS = DedupLimits(producers_max=2, inactivity_ms=1000)


class DedupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = DedupState()
        self.now_ms = 0
        self.attached: set[str] = set(NAMES)
        self.next: dict[str, int] = dict.fromkeys(NAMES, 0)
        """Number that a producer gives to its next message."""
        self.heard: dict[str, int] = dict.fromkeys(NAMES, -1)
        """Highest number that a producer has a receipt for."""
        self.durable: list[tuple[str, int]] = []
        self.under_way: list[tuple[str, int]] = []
        self.snapshot: tuple[dict[str, int], int] = ({}, 0)
        """What is stored, and how many entries of the log it stands for."""

    @rule(name=st.sampled_from(NAMES), fresh=st.integers(0, 3), again=st.integers(0, 5))
    def send(self, name: str, fresh: int, again: int) -> None:
        """New messages behind some that were sent before."""
        if name not in self.attached:
            return
        start = max(self.next[name] - again, 0)
        stop = self.next[name] + fresh
        numbers = list(range(start, stop))
        if not numbers:
            return
        known = {number for other, number in self.durable + self.under_way if other == name}
        spans = self.state.admit(name, numbers, numbers) or [Span(0, len(numbers), False)]
        for span in spans:
            for number in numbers[span.start : span.stop]:
                assert span.duplicate is (number in known), (name, number)
                if not span.duplicate:
                    self.under_way.append((name, number))
        self.next[name] = stop

    @rule(count=st.integers(1, 4))
    def sync(self, count: int) -> None:
        done, self.under_way = self.under_way[:count], self.under_way[count:]
        for name, number in done:
            self.durable.append((name, number))
            self.state.persisted(name, number)
            self.heard[name] = max(self.heard[name], number)

    @precondition(lambda self: self.under_way)
    @rule()
    def the_log_fails(self) -> None:
        """What is under way is lost, and its producers send it again."""
        lost, self.under_way = self.under_way, []
        for name in {name for name, _ in lost}:
            self.state.forget_pushed(name)
            self.next[name] = self.heard[name] + 1

    @rule()
    def store(self) -> None:
        self.snapshot = (self.state.snapshot(), len(self.durable))

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        self.attached.discard(name)

    @rule(name=st.sampled_from(NAMES))
    def come_back(self, name: str) -> None:
        """A producer goes on behind what the broker has of it; one that was forgotten goes on by itself."""
        self.attached.add(name)
        last = self.state.last_sequence(name)
        if last >= 0:
            assert last >= self.heard[name]

    @rule(ms=st.integers(0, 600))
    def maintain(self, ms: int) -> None:
        self.now_ms += ms
        before = self.state.snapshot()
        self.state.retire(self.attached, self.now_ms, LIMITS)
        after = self.state.snapshot()
        for name in before.keys() - after.keys():
            assert name not in self.attached
            assert name not in {other for other, _ in self.under_way}
            # From here on the promise ends for this one: it is a new producer when it comes back.
            self.durable = [(other if other != name else "", number) for other, number in self.durable]
        if before.keys() != after.keys():
            self.store()
        away = [name for name in after if name not in self.attached]
        busy = {name for name, _ in self.under_way}
        assert len([name for name in away if name not in busy]) <= LIMITS.producers_max

    @rule()
    def crash(self) -> None:
        stored, complete = self.snapshot
        for name in {name for name, _ in self.under_way}:
            self.next[name] = self.heard[name] + 1
        self.under_way = []
        self.state = DedupState(dict(stored))
        for name, number in self.durable[complete:]:
            if name:
                self.state.persisted(name, number)

    @invariant()
    def everything_is_once_in_the_log_and_in_order(self) -> None:
        self.state.check()
        for name in NAMES:
            numbers = [number for other, number in self.durable + self.under_way if other == name]
            assert numbers == sorted(set(numbers))

    @invariant()
    def nothing_that_was_heard_of_is_missing(self) -> None:
        for name in NAMES:
            numbers = {number for other, number in self.durable if other in (name, "")}
            assert self.heard[name] == -1 or self.heard[name] in numbers


DedupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDedup = DedupMachine.TestCase
