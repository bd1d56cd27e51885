"""A managed log through appends, rollover, acknowledgements, trimming, failures and crashes, against a model.

The model knows which entries were told to be durable, and for each cursor every set of acknowledged
entries it ever stood at, with the last one that was told to be durable. After a crash everything told
must be there, in order, with its index; a cursor must stand at the last durable set or a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fakes.ledgers import FakeLedgers, write_error
from fakes.managed_logs import Process, Recorder, positions_of, read_all
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.config import Retention
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.errors import LogFailedError
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_state import LogState

T = TypeVar("T")

CURSORS = ("a", "b")


class CursorModel:
    """What one cursor may be after a crash."""

    def __init__(self, acked: frozenset[Position]) -> None:
        self.history = [acked]
        self.durable = 0

    def changed(self, cursor: Cursor, acked: frozenset[Position]) -> None:
        self.history.append(acked)
        at = len(self.history) - 1

        def told(error: BaseException | None) -> None:
            if error is None:
                self.durable = max(self.durable, at)

        cursor.when_durable(told)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.told: dict[Position, tuple[bytes, int, int]] = {}
        # Appended and never told: lost with a crash or failure, or kept, from the first on.
        self.pending: list[tuple[Position, bytes]] = []
        self.next_index = 0
        self.serial = 0
        self.cursors: dict[str, CursorModel] = {}
        self.process: Process
        self.log: ManagedLog
        self.listener: Recorder

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work that waits for durability."""

        async def driving() -> T:
            task = asyncio.ensure_future(work)
            for _ in range(1000):
                if task.done():
                    return task.result()
                self.process.ledgers.sync()
                await asyncio.sleep(0)
            raise AssertionError("waits for ever")

        return self.run(driving())

    def teardown(self) -> None:
        async def end() -> None:
            await self.process.crash()

        self.run(end())
        self.loop.close()

    @initialize(cache_bytes=st.sampled_from([0, 30, 10_000]))
    def begin(self, cache_bytes: int) -> None:
        self.process = Process(
            ledgers=FakeLedgers(auto_sync=False),
            entries_max_per_ledger=5,
            cache_bytes=cache_bytes,
            cursor_compact_bytes_min=120,
            cursor_fold_ranges_max=2,
        )
        self.reopen()
        self.open_cursor(name="a", earliest=True)

    def reopen(self) -> None:
        async def opening() -> None:
            self.log, self.listener = await self.process.open()

        self.run(opening())

    def note_told(self) -> None:
        """Takes over what the listener was told since the last time."""
        for run in self.listener.runs:
            index = run.base_index
            for offset, entry in enumerate(run.entries):
                position = Position(run.ledger_id, run.first_entry + offset)
                assert self.pending.pop(0) == (position, entry)
                assert not self.told or position > max(self.told)
                self.told[position] = (entry, index, run.count_of(offset))
                index += run.count_of(offset)
            self.next_index = index
        self.listener.runs.clear()

    def settle(self) -> None:
        self.run(self.process.settle())
        self.note_told()

    # Steps

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), single=st.booleans())
    def append(self, counts: list[int], single: bool) -> None:
        async def appending() -> Position:
            entries = []
            for _ in counts:
                self.serial += 1
                entries.append(b"entry-%d" % self.serial)
            position = self.log.append(entries, None if single else list(counts))
            for offset, entry in enumerate(entries):
                self.pending.append((Position(position.ledger_id, position.entry_id + offset), entry))
            return position

        self.process.clock.advance(10)
        if self.log.state is LogState.OPEN:
            before = self.log.next_index
            position = self.run(appending())
            assert position > self.log.last_position
            assert self.log.next_index == before + (len(counts) if single else sum(counts))
        else:
            try:
                self.run(appending())
            except LogFailedError:
                return
            raise AssertionError("a failed log took an append")

    @rule(count=st.integers(1, 6), which=st.integers(0, 10))
    def sync_some(self, count: int, which: int) -> None:
        """One writer, of the log or of a cursor, makes a few entries durable."""

        async def syncing() -> None:
            writers = [ledger.writer for ledger in self.process.ledgers.ledgers.values()]
            living = [writer for writer in writers if writer is not None]
            if living:
                living[which % len(living)].sync(count)

        self.run(syncing())
        self.note_told()

    @rule()
    def sync_all(self) -> None:
        async def syncing() -> None:
            for _ in range(5):
                self.process.ledgers.sync()
                await self.process.settle()

        self.run(syncing())
        self.note_told()

    @rule()
    def turn(self) -> None:
        self.settle()

    @rule(odds=st.integers(0, 3))
    def fail_writer(self, odds: int) -> None:
        if odds:
            return

        async def failing() -> None:
            current = self.process.ledgers.tagged(None)
            if current:
                writer = self.process.ledgers.ledgers[current[-1]].writer
                if writer is not None:
                    writer.fail(write_error())

        self.run(failing())
        self.note_told()

    @rule()
    def fail_creation(self) -> None:
        self.process.ledgers.create_errors.append(write_error())

    # Cursors

    def readable(self) -> list[Position]:
        first = self.log.first_position
        return [position for position in self.told if position >= first]

    def acked_now(self, cursor: Cursor) -> frozenset[Position]:
        return frozenset(position for position in self.told if cursor.is_acked(position))

    @rule(name=st.sampled_from(CURSORS), earliest=st.booleans())
    def open_cursor(self, name: str, earliest: bool) -> None:
        async def opening() -> Cursor:
            return await self.log.open_cursor(name, initial="earliest" if earliest else "latest")

        cursor = self.run(opening())
        if name not in self.cursors:
            self.cursors[name] = CursorModel(self.acked_now(cursor))

    @rule(data=st.data())
    def ack_and_wait(self, data: st.DataObject) -> None:
        if self.log.state is LogState.OPEN:
            self.process.ledgers.create_errors.clear()
            for name in self.cursors:
                self.ack(data=data, name=name)
                self.drive(self.log.cursors[name].flush())
                self.note_told()

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), name=st.sampled_from(CURSORS))
    def ack(self, data: st.DataObject, name: str) -> None:
        cursor = self.log.cursors.get(name)
        if cursor is None or not self.told:
            return
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.told)), max_size=6))

        async def acking() -> None:
            expected = self.acked_now(cursor) | (set(chosen) & set(self.readable()))
            cursor.ack(chosen)
            assert self.acked_now(cursor) == expected
            self.cursors[name].changed(cursor, expected)

        self.run(acking())

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), name=st.sampled_from(CURSORS), seek=st.booleans())
    def move(self, data: st.DataObject, name: str, seek: bool) -> None:
        cursor = self.log.cursors.get(name)
        readable = self.readable()
        if cursor is None or not readable:
            return
        position = data.draw(st.sampled_from(readable))

        async def moving() -> None:
            # Trimming goes on in the background: what is gone stays acknowledged.
            before, gone = self.acked_now(cursor), set(self.told) - set(self.readable())
            if seek:
                cursor.reset(position)
                expected = frozenset(known for known in self.told if known < position) | gone
            else:
                cursor.ack_cumulative(position)
                expected = before | {known for known in self.told if known <= position}
            assert self.acked_now(cursor) == expected
            self.cursors[name].changed(cursor, expected)

        self.run(moving())

    @rule(name=st.sampled_from(CURSORS))
    def delete_cursor(self, name: str) -> None:
        if name in self.log.cursors:
            self.drive(self.log.delete_cursor(name))
            self.note_told()
            del self.cursors[name]

    # Trimming

    @rule(size=st.sampled_from([0, 40, -1]))
    def retain(self, size: int) -> None:
        async def setting() -> None:
            self.log.retention = Retention(-1, size)

        self.run(setting())

    # Ends of a life

    @rule()
    def crash(self) -> None:
        async def crashing() -> Process:
            return await self.process.crash()

        self.process = self.run(crashing())
        self.reopen()
        self.check_recovered()

    @rule()
    def restart(self) -> None:
        failed = self.log.state is not LogState.OPEN or bool(self.process.ledgers.create_errors)
        for name, model in self.cursors.items():
            assert model.history[-1] <= self.acked_now(self.log.cursors[name])
        self.process.ledgers.create_errors.clear()
        self.process = self.drive(self.process.restart())
        self.note_told()
        self.reopen()
        if not failed:
            for model in self.cursors.values():
                model.durable = len(model.history) - 1
        self.check_recovered()

    @rule()
    def open_again(self) -> None:
        """A failed log is replaced; a good one stays."""
        before = self.log

        good = before.state is LogState.OPEN
        self.process.ledgers.create_errors.clear()
        log = self.drive(self.process.logs.open(before.name))
        self.note_told()
        assert (log is before) == good
        if not good:
            self.log, self.listener = log, Recorder()
            log.listener = self.listener
            self.check_recovered()

    def check_recovered(self) -> None:
        told_last = max(self.told, default=Position(-1, -1))
        survivors = [
            run for run in self.run(read_all(self.log, entries_max=1)) if positions_of([run])[0] > told_last
        ]
        kept = [(positions_of([run])[0], run.entries[0]) for run in survivors]
        assert kept == self.pending[: len(kept)], "only what was appended, in order, without gaps"
        self.listener.runs += survivors
        self.note_told()
        self.pending.clear()
        assert self.log.next_index == self.next_index
        assert set(self.log.cursors) == set(self.cursors)
        readable = frozenset(self.readable())
        for name, model in self.cursors.items():
            acked = self.acked_now(self.log.cursors[name]) & readable
            possible = [known & readable for known in model.history[model.durable :]]
            assert acked in possible, f"{name} stands at {sorted(acked)}"
            self.cursors[name] = CursorModel(self.acked_now(self.log.cursors[name]))

    # What holds at all times

    @rule(start=st.integers(0, 30), bytes_max=st.integers(1, 60), entries_max=st.integers(1, 8))
    def read(self, start: int, bytes_max: int, entries_max: int) -> None:
        self.settle()
        expected = self.readable()[start:]
        position = expected[0] if expected else self.log.next_position(self.log.last_position)

        async def reading() -> list[EntryRun]:
            return await self.log.read(position, bytes_max, entries_max)

        runs = self.run(reading())
        got = positions_of(runs)
        assert got == expected[: len(got)]
        assert bool(got) == bool(expected)
        assert len(got) <= entries_max
        assert len(got) == 1 or sum(run.size_bytes for run in runs) <= bytes_max

    @rule()
    def everything_is_there(self) -> None:
        self.settle()
        self.log.check()
        runs = self.run(read_all(self.log, bytes_max=50, entries_max=3))
        readable = self.readable()
        assert positions_of(runs) == readable
        assert self.log.entry_count == len(readable)
        for run in runs:
            index = run.base_index
            for offset, entry in enumerate(run.entries):
                known = self.told[Position(run.ledger_id, run.first_entry + offset)]
                assert known == (entry, index, run.count_of(offset))
                index += run.count_of(offset)
        trimmed = set(self.told) - set(readable)
        for name, cursor in self.log.cursors.items():
            assert trimmed <= self.acked_now(cursor), "trimmed before everyone was done with it"
            assert cursor.backlog_entries == sum(not cursor.is_acked(position) for position in readable), name

    @rule(index=st.integers(0, 60))
    def look_up_index(self, index: int) -> None:
        self.settle()
        readable = self.readable()
        position = self.run(self.log.position_of_index(index))
        holding = [at for at in readable if self.told[at][1] + self.told[at][2] > index]
        assert position == (holding[0] if holding else self.log.next_position(self.log.last_position)) or (
            not readable
        )

    @rule(time=st.integers(0, 400))
    def look_up_time(self, time: int) -> None:
        self.settle()
        runs = self.run(read_all(self.log))
        wanted = 1_700_000_000_000 + time
        later = [positions_of([run])[0] for run in runs if run.broker_time_ms >= wanted]
        position = self.run(self.log.position_of_time(wanted))
        assert position == (later[0] if later else self.log.next_position(self.log.last_position))


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestManagedLog = LogMachine.TestCase
