"""A process that appends to logs, acknowledges and deletes until it is killed, and the check of what it left.

    python log_writer.py DATA_FOLDER SEED

It has the stores of a standalone: data folder, segment store, metadata, ledgers with their guard. Lines on
stdout, each written when it is so:

    told LOG SERIAL LEDGER ENTRY     the entry with that content is durable
    acking LOG LEDGER ENTRY          everything up to there is acknowledged from now on, durable or not
    acked LOG LEDGER ENTRY           that is durable
    deleting LOG, deleted LOG        around a deletion
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import EARLIEST, Position
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.logs import ManagedLogs
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.storage.datafolder import DataFolder
from magnetar.server.storage.message_stores import open_stores

LOGS = 3
CURSOR = "c"
SEGMENT_BYTES = 1 << 18


def content(log: str, serial: int) -> bytes:
    """What the entry of that number in a log holds."""
    chance = random.Random(f"{log} {serial}")
    return f"{log} {serial} ".encode() + chance.randbytes(chance.randrange(400))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[ManagedLogs]:
    """The logs of a data folder, over the stores of a standalone."""
    clock = ManualClock()
    async with contextlib.AsyncExitStack() as cleanup:
        folder = DataFolder(root)
        cleanup.callback(folder.release)
        tasks = TaskGroup("logs")

        def failed(error: MagnetarError) -> None:
            print(error, file=sys.stderr)
            os._exit(3)

        stores = await open_stores(
            StandaloneConfig(data_dir=root, segment_bytes=SEGMENT_BYTES),
            folder,
            clock=clock,
            cleanup=cleanup,
            spawn=tasks.spawn,
            failed=failed,
        )
        cleanup.push_async_callback(tasks.close)
        logs = ManagedLogs(
            store=stores.metadata,
            ledgers=stores.ledgers,
            clock=clock,
            config=ManagedLogConfig(entries_max_per_ledger=7, rollover_ms_min=0, cursor_flush_ms=1),
            spawn=tasks.spawn,
        )
        cleanup.push_async_callback(logs.close)
        yield logs


class Listener:
    """Says what became durable."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: Position | None = None

    def appended(self, run: EntryRun) -> None:
        lines = []
        for offset, entry in enumerate(run.entries):
            self.last = Position(run.ledger_id, run.first_entry + offset)
            serial = entry.split(b" ")[1].decode()
            lines.append(f"told {self.name} {serial} {run.ledger_id} {self.last.entry_id}\n")
        os.write(1, "".join(lines).encode())

    def failed(self, error: Exception) -> None:
        print(error, file=sys.stderr)
        os._exit(3)


class Writer:
    """Appends to one log after the other."""

    def __init__(self, logs: ManagedLogs, seed: int) -> None:
        self._logs = logs
        self._chance = random.Random(seed)
        self._seed = seed
        self._made = 0
        self._open: dict[str, tuple[ManagedLog, Listener, int]] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            while len(self._open) < LOGS:
                await self._begin()
            for name in list(self._open):
                await self._step(name)
            if self._chance.random() < 0.03:
                name = self._chance.choice(list(self._open))
                # What it has not been told of by now is lost with the log, which is not a failure.
                self._open.pop(name)[0].listener = None
                say(f"deleting {name}")
                await self._logs.delete(name)
                say(f"deleted {name}")
            await asyncio.sleep(0.001 if self._chance.random() < 0.3 else 0)

    async def _begin(self) -> None:
        name = f"public/default/persistent/t{self._seed}-{self._made}"
        self._made += 1
        log = await self._logs.open(name)
        listener = Listener(name)
        log.listener = listener
        await log.open_cursor(CURSOR, initial="earliest")
        self._open[name] = log, listener, 0

    async def _step(self, name: str) -> None:
        log, listener, serial = self._open[name]
        count = self._chance.randrange(1, 5)
        if log.pending_bytes < 1 << 16:
            log.append([content(name, serial + i) for i in range(count)], None)
            self._open[name] = log, listener, serial + count
        if listener.last is not None and self._chance.random() < 0.3:
            upto, cursor = listener.last, log.cursors[CURSOR]
            where = f"{name} {upto.ledger_id} {upto.entry_id}"
            say(f"acking {where}")
            cursor.ack_cumulative(upto)
            cursor.when_durable(lambda error: say(f"acked {where}") if error is None else None)


@dataclass
class Said:
    """What the writers said of one log."""

    told: dict[Position, int] = field(default_factory=dict)
    acking: Position = EARLIEST
    acked: Position = EARLIEST
    deleting: bool = False
    deleted: bool = False


def understood(said: bytes) -> dict[str, Said]:
    """By log; the last line may be cut. A later writer's word counts more."""
    logs: dict[str, Said] = {}
    for line in said.decode().split("\n")[:-1]:
        word, name, *rest = line.split()
        log = logs.setdefault(name, Said())
        if word == "told":
            serial, ledger_id, entry_id = map(int, rest)
            log.told[Position(ledger_id, entry_id)] = serial
        elif word in ("acking", "acked"):
            setattr(log, word, Position(*map(int, rest)))
        else:
            setattr(log, word, True)
    return logs


async def lost(root: Path, said: bytes) -> list[str]:
    """Opens what the writers left: everything they said that is not so."""
    found: list[str] = []
    async with opened(root) as logs:
        for name, log in understood(said).items():
            if log.deleted and await logs.exists(name):
                found.append(f"{name} came back")
            if log.told and not log.deleting:
                found += await _lost_of(logs, name, log)
    return found


async def _lost_of(logs: ManagedLogs, name: str, said: Said) -> list[str]:
    if not await logs.exists(name):
        return [f"{name} is not there"]
    log = await logs.open(name)
    there: dict[Position, bytes] = {}
    position = log.first_position
    while runs := await log.read(position, 1 << 20, 1000):
        for run in runs:
            for offset, entry in enumerate(run.entries):
                there[Position(run.ledger_id, run.first_entry + offset)] = entry
            position = Position(run.ledger_id, run.last_entry + 1)
    found = []
    for place, serial in said.told.items():
        entry = there.get(place)
        if entry is None and place > said.acking:
            found.append(f"{name}: {place} is lost")
        elif entry is not None and entry != content(name, serial):
            found.append(f"{name}: {place} is wrong")
    mark_delete = log.cursors[CURSOR].mark_delete if CURSOR in log.cursors else EARLIEST
    if mark_delete < said.acked and log.entries_between(mark_delete, said.acked):
        found.append(f"{name}: acknowledged up to {said.acked}, found {mark_delete}")
    if mark_delete > said.acking and log.entries_between(said.acking, mark_delete):
        found.append(
            f"{name}: {mark_delete} is acknowledged, but nothing was acknowledged behind {said.acking}"
        )
    return found


async def write(root: Path, seed: int) -> None:
    async with opened(root) as logs:
        await Writer(logs, seed).run()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
