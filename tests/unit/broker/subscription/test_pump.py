"""The pump and the place that it reads at, alone: what happens, what they decide (`transcripts/pump-*.txt`).

    > permits 3
    < sent 0-2

The tests have no event loop, no storage and no connection: what the driver would do is a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import ConsumerId, LedgerId, Position
from magnetar.broker.dispatch.consumer import Pending
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.subscription.pump import Pump, RateWait, Step, StoredRead
from magnetar.broker.subscription.pump_turns import GIVEN_BACK_AT_ONCE, PumpTurns
from magnetar.broker.subscription.read_place import ReadPlace
from magnetar.broker.subscription.tally import Tally
from support.transcripts import replayed

FILES = sorted((Path(__file__).parent / "transcripts").glob("pump-*.txt"))
LEDGER = LedgerId(1)


def at(entry_id: int) -> Position:
    return Position(LEDGER, entry_id)


class Log:
    """A log of one ledger, whose entries are in memory, on a disk, or damaged."""

    def __init__(self) -> None:
        self.count = 0
        self.terminated: Position | None = None
        self.where = "memory"
        self.took_ms = 0.0
        self.clock_ms = 0.0
        self.skipped = self.visible = None

    @property
    def reading(self) -> Log:
        return self

    @property
    def last_position(self) -> Position:
        return at(self.count - 1)

    def next_position(self, position: Position) -> Position:
        return at(position.entry_id + 1)

    def previous_position(self, position: Position) -> Position:
        return at(position.entry_id - 1)

    def entries_between(self, after: Position, upto: Position) -> int:
        return max(0, upto.entry_id - after.entry_id)

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        self.clock_ms += self.took_ms
        if self.where == "damage":
            raise CorruptDataError("segments/1.seg", 4_096, "the entries do not match", LEDGER)
        return None if self.where == "disk" else self.runs(position, entries_max)

    def runs(self, position: Position, entries_max: int) -> list[EntryRun]:
        first = position.entry_id
        stop = min(self.count, first + entries_max)
        if first >= stop:
            return []
        return [EntryRun(LEDGER, first, [b"e"] * (stop - first), None, 0, 0)]


class Acks:
    """A cursor that knows nothing but its mark-delete."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.mark_delete = at(-1)
        self.properties: dict[str, int] = {}

    @property
    def backlog_entries(self) -> int:
        return self._log.count - 1 - self.mark_delete.entry_id

    def may_know_from(self, position: Position) -> bool:
        return False

    def ack_cumulative(self, position: Position) -> None:
        self.mark_delete = max(self.mark_delete, position)

    def reset(self, position: Position) -> None:
        self.mark_delete = at(position.entry_id - 1)


class Around:
    """What a pump has around it: delayed entries, rates, budgets, a connection, an encoder."""

    def __init__(self, log: Log) -> None:
        self.said: list[str] = []
        self.log = log
        self.count = 0
        self.crowded = False
        self.read_bytes = 1 << 20
        self.allowed = 0
        self.size_bytes = 10
        self.out: list[bytes] = []
        self.writable = True

    def now_ms(self) -> int:
        return 0

    def settled_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.log.clock_ms

    def forget_upto(self, position: Position) -> None:
        self.said.append(f"delays forgotten up to {position.entry_id}")

    def ask_output(self) -> bool:
        return self.writable

    def queued(self, size_bytes: int) -> None:
        """What was sent is told by `encode`."""

    def end_of_topic(self, consumer: AttachedConsumer) -> None:
        self.said.append("told the end of the topic")

    def encode(self, run: EntryRun, start: int, stop: int, out: list[bytes], **more: Any) -> int:
        self.said.append(f"sent {run.first_entry + start}-{run.first_entry + stop - 1}")
        return self.size_bytes * (stop - start)

    def room(self, entries_max: int, bytes_max: int) -> tuple[int, int]:
        return (min(self.allowed, entries_max), bytes_max) if self.allowed else (0, 0)

    def sent(self, messages: int, size_bytes: int) -> None:
        self.allowed -= messages

    def wait_ms(self) -> int:
        return 250


class Filters:
    """Entry filters that accept everything."""

    def __init__(self, log: Log) -> None:
        self.read_now = log.read_now

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        raise AssertionError("everything is in memory")

    def forget(self) -> None:
        """Nothing is known."""


class Stage:
    """One subscription without its driver."""

    def __init__(self) -> None:
        self.log = Log()
        self.acks = Acks(self.log)
        self.around = Around(self.log)
        self.booked: list[Callable[[], None]] = []
        self.read: StoredRead | None = None
        self.left: list[str] = []
        self.turns = PumpTurns(self._remove, self._run, self._book)
        self.place = ReadPlace(cast("Any", self.log), cast("Any", self.acks), self.around)
        self.tally = Tally(0)
        self.pump = Pump(self.place, self.turns, self.tally, self.around, self.around)
        self.consumer = self._attach()

    def _attach(self) -> AttachedConsumer:
        around = cast("Any", self.around)
        dispatcher = SingleActiveDispatcher(
            cast("Any", self.acks),
            self.place.start,
            failover=False,
            partition=-1,
            successor=self.log.next_position,
            active_changed=lambda consumer, active: None,
        )
        consumer = AttachedConsumer(
            ConsumerId(1), "c", around, connection=around, encoder=around, subscription=around, properties={}
        )
        dispatcher.add(consumer)
        self.place.dispatcher = dispatcher
        return consumer

    def _book(self, run: Callable[[], None]) -> None:
        self.around.said.append("goes on in the next turn")
        self.booked.append(run)

    def _remove(self, consumer: AttachedConsumer) -> None:
        self.around.said.append(f"{consumer.name} has left")

    def _run(self) -> None:
        self._follow(self.pump.run())

    def _follow(self, step: Step | None) -> None:
        if isinstance(step, StoredRead):
            assert self.read is None, "two reads at a time"
            self.read = step
            self.around.said.append(f"reads {step.want.entries_max} from {step.want.position.entry_id} on")
        elif isinstance(step, RateWait):
            self.around.said.append(f"waits {step.wait_ms} ms")
        elif step is not None:
            self.around.said.append(step.obstacle)

    def say(self, line: str) -> list[str]:
        word, _, rest = line.partition(" ")
        HAPPENS[word](self, *(int(each) if each.lstrip("-").isdigit() else each for each in rest.split()))
        for each in (self.pump, self.place, self.turns):
            each.check()
        said, self.around.said = self.around.said, []
        return said

    # -- what happens ------------------------------------------------------------------------------

    def on_publish(self, count: int) -> None:
        self.log.count += count
        self._run()

    def on_permits(self, count: int) -> None:
        self.consumer.permits += count
        self._run()

    def on_ack(self, upto: int) -> None:
        self.acks.ack_cumulative(at(upto))
        self._run()

    def on_terminate(self) -> None:
        self.log.terminated = self.log.last_position
        self._run()

    def on_entries(self, where: str) -> None:
        self.log.where = where

    def on_each(self, what: str, number: int) -> None:
        if what == "read_ms":
            self.log.took_ms = number
        else:
            self.around.size_bytes = number

    def on_crowd(self) -> None:
        self.around.crowded = True

    def on_rate(self, allowed: int) -> None:
        self.pump.throttle, self.around.allowed = self.around, allowed

    def on_filters(self) -> None:
        self.place.screen = Filters(self.log)

    def on_turn(self) -> None:
        booked, self.booked = self.booked, []
        for run in booked:
            run()

    def on_alarm(self) -> None:
        self._run()

    def on_arrives(self) -> None:
        read = self._ended()
        self.pump.arrived(read, self.log.runs(read.want.position, read.want.entries_max))
        self._run()

    def on_fails(self) -> None:
        self._follow(self.pump.failed(self._ended().want, OSError("no device")))

    def _ended(self) -> StoredRead:
        read, self.read = self.read, None
        assert read is not None
        self.pump.read_ended()
        return read

    def on_skip(self, upto: int) -> None:
        self.around.said.append("mark-delete advanced" if self.place.skip(at(upto)) else "nothing to skip")
        self._run()

    def on_seek(self, entry_id: int) -> None:
        self.place.dispatcher = None
        self.place.seek(at(entry_id), at(entry_id))
        self.consumer = self._attach()

    def on_again(self) -> None:
        self.place.read_again()
        self._run()

    def on_leaves(self, held: int) -> None:
        for number in range(held):
            self.consumer.pending[at(number)] = Pending(1)
        self.turns.leave(self.consumer)

    def on_state(self) -> None:
        next_read = self.place.read_position.entry_id
        self.around.said.append(f"{self.pump.state.value}, {self.place.unread} unread from {next_read} on")


HAPPENS: dict[str, Callable[..., None]] = {
    "publish": Stage.on_publish,
    "permits": Stage.on_permits,
    "ack": Stage.on_ack,
    "terminate": Stage.on_terminate,
    "entries": Stage.on_entries,
    "each": Stage.on_each,
    "crowd": Stage.on_crowd,
    "rate": Stage.on_rate,
    "filters": Stage.on_filters,
    "turn": Stage.on_turn,
    "alarm": Stage.on_alarm,
    "arrives": Stage.on_arrives,
    "fails": Stage.on_fails,
    "skip": Stage.on_skip,
    "seek": Stage.on_seek,
    "again": Stage.on_again,
    "leaves": Stage.on_leaves,
    "state": Stage.on_state,
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_as_the_transcript_says(file: Path) -> None:
    lines = replayed(file, Stage().say)
    assert lines == file.read_text(encoding="utf-8").splitlines()


def test_a_consumer_with_the_most_that_is_given_back_at_once_leaves_at_once() -> None:
    stage = Stage()
    assert stage.say(f"leaves {GIVEN_BACK_AT_ONCE}") == ["c has left", "goes on in the next turn"]


def test_a_read_ends_once() -> None:
    with pytest.raises(AssertionError, match="not under way"):
        Stage().pump.read_ended()


def test_consumers_are_detached_before_a_seek() -> None:
    with pytest.raises(AssertionError, match="go on where they were"):
        Stage().place.seek(at(0), at(0))


def test_a_pump_that_never_came_back_is_noticed() -> None:
    stage = Stage()
    stage.log.where = "disk"
    stage.say("publish 1")
    stage.say("permits 1")
    stage.pump.obstacle = "reading failed"
    with pytest.raises(AssertionError, match="says that it cannot"):
        stage.pump.check()


def test_two_sources_are_noticed() -> None:
    stage = Stage()
    stage.place.acks = cast("Any", Acks(stage.log))
    with pytest.raises(AssertionError, match="acknowledged in another cursor"):
        stage.place.check()
