"""A process with managed logs over controllable fakes, and the one after its crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from fakes.ledgers import FakeLedgers
from fakes.metadata import FakeMetadataStore
from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError
from magnetar.base.ids import Position
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.logs import ManagedLogs
from support.turns import turn_until_quiet

_TURNS: Final = 1000
_PATIENCE_S: Final = 60.0

NAME = "public/default/persistent/t"

CONFIG = ManagedLogConfig(rollover_ms_min=0, cursor_flush_ms=0)
"""Rollover as soon as a limit is reached; cursors flush at the next turn of the loop."""


class Recorder:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.runs: list[EntryRun] = []
        self.errors: list[LogError] = []

    def appended(self, run: EntryRun) -> None:
        self.runs.append(run)

    def failed(self, error: LogError) -> None:
        self.errors.append(error)

    @property
    def entries(self) -> list[bytes]:
        return [entry for run in self.runs for entry in run.entries]

    @property
    def positions(self) -> list[Position]:
        return positions_of(self.runs)


def positions_of(runs: list[EntryRun]) -> list[Position]:
    return [
        Position(run.ledger_id, run.first_entry + offset)
        for run in runs
        for offset in range(len(run.entries))
    ]


class Process:
    """One life of a broker's logs."""

    def __init__(
        self,
        *,
        config: ManagedLogConfig = CONFIG,
        store: FakeMetadataStore | None = None,
        ledgers: FakeLedgers | None = None,
        clock: ManualClock | None = None,
        **changes: Any,
    ) -> None:
        self.config = replace(config, **changes)
        self.store = store or FakeMetadataStore()
        self.ledgers = ledgers or FakeLedgers()
        self.clock = clock or ManualClock()
        self.tasks: set[asyncio.Task[None]] = set()
        self.logs = ManagedLogs(
            store=self.store,
            ledgers=self.ledgers,
            clock=self.clock,
            config=self.config,
            spawn=self.spawn,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)

    async def open(self, name: str = NAME) -> tuple[ManagedLog, Recorder]:
        log = await self.logs.open(name)
        listener = Recorder()
        log.listener = listener
        return log, listener

    async def settle(self) -> None:
        """Until all that can happen by itself has happened; background work must not have failed."""
        await turn_until_quiet(100)
        for task in list(self.tasks):
            if task.done():
                self.tasks.discard(task)
                task.result()

    async def crash(self) -> Process:
        """kill -9: what is not durable is gone, and nothing of this process runs any more."""
        after = Process(
            config=self.config, store=self.store.crash(), ledgers=self.ledgers.crash(), clock=self.clock
        )
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        return after

    async def restart(self) -> Process:
        """A clean stop, and the process after it."""
        await self.logs.close()
        await self.settle()
        return Process(config=self.config, store=self.store, ledgers=self.ledgers, clock=self.clock)


async def read_all(log: ManagedLog, *, bytes_max: int = 1 << 20, entries_max: int = 1000) -> list[EntryRun]:
    """Everything from the first position on."""
    out: list[EntryRun] = []
    position = log.first_position
    while runs := await log.read(position, bytes_max, entries_max):
        out += runs
        position = log.next_position(Position(runs[-1].ledger_id, runs[-1].last_entry))
    return out


async def until(process: Process, condition: Callable[[], bool]) -> None:
    """Lets the loop turn until `condition` holds; what takes longer than some turns is in a thread."""
    deadline = time.monotonic() + _PATIENCE_S
    turns = 0
    while not condition():
        assert time.monotonic() < deadline, "the condition was never met"
        turns += 1
        await asyncio.sleep(0 if turns < _TURNS else 0.001)
