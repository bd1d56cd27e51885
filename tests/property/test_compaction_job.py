"""A topic's compaction against a simple model: any order of begins, ends and new entries."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.base.ids import EARLIEST, Position
from magnetar.broker.compaction.job import CompactionJob, CompactionStatus
from magnetar.broker.errors import ConflictError


class JobMachine(RuleBasedStateMachine):
    """`last` is the last entry of the log, `aim` where the compaction under way ends, None: nowhere new."""

    def __init__(self) -> None:
        super().__init__()
        self.job = CompactionJob("t")
        self.last = EARLIEST
        self.horizon = EARLIEST
        self.running = False
        self.aim: Position | None = None
        self.now_ms = 1_000

    @rule(ledgers=st.integers(0, 1), entries=st.integers(1, 5))
    def publish(self, ledgers: int, entries: int) -> None:
        ledger = max(self.last.ledger_id, 0) + ledgers
        first = -1 if ledgers else self.last.entry_id
        self.last = Position(ledger, first + entries)

    @rule()
    def begin(self) -> None:
        self.now_ms += 10
        if self.running:
            with pytest.raises(ConflictError):
                self.job.begin("t", self.now_ms)
            return
        self.job.begin("t", self.now_ms)
        self.running = True
        self.aim = self.job.next_horizon(None if self.last == EARLIEST else self.last)
        assert (self.aim is None) == (self.last <= self.horizon)

    @precondition(lambda self: self.running)
    @rule(removed=st.integers(0, 9))
    def succeed(self, removed: int) -> None:
        if self.aim is not None:
            self.job.switched(self.aim, removed)
            self.horizon = self.aim
        self.now_ms += 5
        self.job.succeed(self.now_ms, self.now_ms)
        self.running = False
        assert self.job.status is CompactionStatus.SUCCESS
        assert self.job.succeeded_ms == self.now_ms

    @precondition(lambda self: self.running)
    @rule()
    def fail(self) -> None:
        self.now_ms += 5
        self.job.fail("away", self.now_ms, self.now_ms)
        self.running = False
        assert self.job.status is CompactionStatus.ERROR

    @rule(threshold=st.integers(0, 100), size=st.integers(0, 1_000), new=st.integers(0, 9))
    def ask(self, threshold: int, size: int, new: int) -> None:
        self.job.threshold_bytes = threshold
        due = self.job.is_due(new_entries=new, log_bytes=size, log_entries=max(new, 10))
        # More of the same is due as well; nothing new never is.
        assert not due or self.job.is_due(new_entries=new + 1, log_bytes=size, log_entries=max(new, 10))
        assert not due or (new and threshold)

    @invariant()
    def agrees(self) -> None:
        self.job.check()
        assert self.job.horizon == self.horizon
        assert self.job.running == self.running


TestJob = JobMachine.TestCase
