"""Losses: every short story of a partition, told by a model of its log, against what the source says."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from magnetar.base.ids import EARLIEST, Position
from magnetar.spark.read.losses import beginning, loss, needs_first_index, remainder
from magnetar.spark.read.offsets import Offset
from magnetar.tables.ledgers import KnownLog


@dataclass
class Log:
    """One partition as a broker keeps it, and one query that reads it."""

    has_index: bool = True
    ledgers: list[list[int]] = field(default_factory=lambda: [[3]])
    """The number of each, and the numbers of its messages."""
    next_ledger: int = 4
    next_index: int = 0
    next_message: int = 0
    unread: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    """Messages that went before they were read."""
    is_another: bool = False
    """Whether it was made again since the query looked at it."""
    offset: Offset | None = None
    bases: dict[int, int] = field(default_factory=lambda: {3: 0})

    def write(self) -> None:
        for _ in range(2):
            self.ledgers[-1].append(self.next_message)
            self.unread.add(self.next_message)
            self.next_message += 1
            self.next_index += 1

    def restart(self) -> None:
        """A new ledger; the last one goes if it is empty."""
        if len(self.ledgers[-1]) == 1:
            self.ledgers.pop()
        self._open()

    def _open(self) -> None:
        self.ledgers.append([self.next_ledger])
        self.bases[self.next_ledger] = self.next_index
        self.next_ledger += 1

    def trim(self) -> None:
        """All that is in sealed ledgers, whether it was read or not."""
        for ledger in self.ledgers[:-1]:
            self.lost |= self.unread & set(ledger[1:])
            self.unread -= set(ledger[1:])
        self.ledgers = self.ledgers[-1:]

    def recreate(self) -> None:
        self.lost |= self.unread
        self.unread = set()
        self.is_another = self.offset is not None
        self.ledgers, self.next_index = [], 0
        self._open()

    def read(self) -> None:
        """A trigger: the offset moves behind all that is there."""
        state = self.state()
        if self.offset is None:
            self.offset = beginning(state)
        if state.ledgers:
            self.offset = Offset(state.end, self.next_index if self.has_index else None)
        self.unread = set()
        if self.is_another:
            self.is_another, self.lost = False, set()

    def start(self) -> None:
        """A query begins, or is restarted, and reads nothing yet."""
        if self.offset is None:
            self.offset = beginning(self.state())
            self.lost = set()

    def state(self) -> KnownLog:
        listed: list[dict[str, Any]] = [
            {
                "ledgerId": number,
                "entries": len(messages),
                "size": 10 * len(messages),
                **({"firstIndex": self.bases[number]} if self.has_index else {}),
            }
            for number, *messages in self.ledgers
        ]
        last = next((each for each in reversed(listed) if each["entries"]), listed[-1])
        confirmed = f"{last['ledgerId']}:{last['entries'] - 1}"
        return KnownLog.from_internal_stats({"lastConfirmedEntry": confirmed, "ledgers": listed})


STEPS = ("write", "restart", "trim", "recreate", "read")


def stories(length: int) -> list[tuple[str, ...]]:
    return [("start", *steps) for steps in product(STEPS, repeat=length)]


def told(steps: tuple[str, ...], *, has_index: bool) -> tuple[Log, str]:
    """The log after the steps, and what is said of losses in the end. A loss is told once: then it ends."""
    log = Log(has_index=has_index)
    for step in steps:
        if step == "read" and log.offset is not None and (said := verdict(log)):
            return log, said
        getattr(log, step)()
    return log, verdict(log)


def verdict(log: Log) -> str:
    assert log.offset is not None
    state = log.state()
    assert not needs_first_index(state, log.offset) or not log.has_index
    return loss(state, log.offset, state.first_index)


@pytest.mark.parametrize("before", [(), ("write",), ("write", "restart", "trim"), ("write", "read")])
def test_every_story_with_an_index(before: tuple[str, ...]) -> None:
    """Empty, trimmed, made again, restarted, in all orders: a loss is told exactly when there is one."""
    count = 0
    for steps in stories(4):
        log, said = told((*before, *steps), has_index=True)
        assert log.offset is not None
        if log.is_another:
            # It is not known what the first one held. It looks the same where nothing had been seen of it, or
            # where the new one has lost as many messages as had been read.
            alike = log.offset.position == EARLIEST or log.state().first_index == log.offset.message_index
            assert said or alike, ((*before, *steps), log)
        else:
            assert bool(said) == bool(log.lost), ((*before, *steps), said, log)
        count += 1
    assert count == len(STEPS) ** 4


def test_every_story_without_an_index() -> None:
    """What was there and is gone is noticed with the next message; emptiness is not taken for a loss."""
    for steps in stories(4):
        log, said = told(("write", *steps), has_index=False)
        if log.state().ledgers:
            assert said or not log.lost, (steps, log)
        log, said = told(steps, has_index=False)
        if "write" not in steps:
            assert not said, (steps, said, log)


def test_reading_goes_on_behind_a_loss_with_all_that_is_there() -> None:
    for steps in stories(4):
        log, said = told(steps, has_index=True)
        if said and log.offset is not None:
            state = log.state()
            on = remainder(state, log.offset, state.first_index)
            assert not loss(state, on, state.first_index)
            assert state.measure(on.position, state.end).entries == sum(
                ledger.entries for ledger in state.ledgers
            )


EMPTY = KnownLog(Position(9, 0), (), is_complete=True, empty_index=0)
TRIMMED = KnownLog(Position(9, 0), (), is_complete=True, empty_index=500)


@pytest.mark.parametrize(
    ("state", "start", "words"),
    [
        (EMPTY, "-1:-1@0", ""),
        (EMPTY, "3:0", ""),
        (TRIMMED, "3:0", ""),
        (TRIMMED, "-1:-1@0", "500 messages before its first entry 9:0@500 were removed"),
        (TRIMMED, "8:20@500", ""),
        (TRIMMED, "8:20@480", "8:20@480 to 9:0@500 was removed"),
        (EMPTY, "8:20@480", "deleted and made again"),
        (EMPTY, "12:3@7", "it ends at 9:0: what was behind is gone"),
        (KnownLog(Position(0, 0)), "12:3@7", ""),
    ],
)
def test_what_is_said(state: KnownLog, start: str, words: str) -> None:
    said = loss(state, Offset.parse(start), state.first_index)
    assert (words in said) if words else not said, said


def test_a_log_that_lost_its_end_is_not_read_again() -> None:
    log = Log()
    log.write()
    state = log.state()
    start = Offset(Position(3, 9), 9)
    assert loss(state, start, 0)
    assert remainder(state, start, 0).position == state.end


def test_a_place_that_a_user_names_has_to_be_there() -> None:
    """What a checkpoint of an older version says of an empty partition is nothing that a user says."""
    log = Log()
    log.write()
    assert loss(log.state(), Offset(Position(0, 0), None), 0, is_named=True)
    assert not loss(log.state(), Offset(Position(0, 0), None), 0)
