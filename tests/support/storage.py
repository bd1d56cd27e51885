"""A segment store in a folder, and a listener of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from magnetar.base.errors import StorageError
from magnetar.bookie.files import Disk
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.runtime.syncer import Syncer

DEADLINE_S = 60.0


class Sink:
    """Keeps the last mark and error of a writer, and wakes the coroutines that wait for a mark."""

    def __init__(self) -> None:
        self.last = -1
        self.error: StorageError | None = None
        self._changed = asyncio.Event()

    def durable(self, last_entry: int) -> None:
        assert self.error is None
        assert last_entry > self.last
        self.last = last_entry
        self._changed.set()

    def failed(self, error: StorageError) -> None:
        assert self.error is None
        self.error = error
        self._changed.set()

    async def reached(self, entry: int) -> None:
        """Returns when everything up to `entry` is durable."""
        await self._until(lambda: self.last >= entry or self.error is not None)
        assert self.error is None, self.error

    async def failure(self) -> StorageError:
        """Returns the error it is told."""
        await self._until(lambda: self.error is not None)
        assert self.error is not None
        return self.error

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Returns when `condition` holds; for work that goes on in threads."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nothing signals the end of a thread's work on a file
            await asyncio.sleep(0.001)


@asynccontextmanager
async def store_in(
    folder: Path | None,
    *,
    durability: Durability = Durability.VOLATILE,
    syncer: Syncer | None = None,
    disk: Disk | None = None,
    on_fatal: Callable[[StorageError], None] | None = None,
    **options: Any,
) -> AsyncIterator[SegmentStore]:
    """An open store with small segments, closed at the end; `options` are those of StoreOptions."""
    options.setdefault("segment_bytes", 1 << 20)
    store = await SegmentStore.open(
        folder,
        options=StoreOptions(**options),
        durability=durability,
        syncer=syncer,
        disk=disk,
        on_fatal=on_fatal,
    )
    try:
        yield store
    finally:
        store.check()
        await store.close()


def run(story: Coroutine[Any, Any, None]) -> None:
    """Runs one story on an event loop of its own."""
    asyncio.run(story)


async def entries_of(store: SegmentStore, ledger_id: int) -> list[bytes]:
    """Everything in a ledger."""
    index = await store.reader.index_of(ledger_id)
    entries: list[bytes] = []
    while len(entries) <= index.last_entry:
        for found in await store.reader.read(index, len(entries), index.last_entry, 1 << 20):
            assert found.first_entry == len(entries)
            entries += found.entries
    return entries


def segments(folder: Path) -> list[Path]:
    """The segment files, ascending."""
    return sorted((folder / "segments").glob("*.seg"))


async def settled(store: SegmentStore) -> None:
    """Returns when threads have sealed and deleted what they must: no file comes or goes by itself then."""

    def quiet() -> bool:
        kept = {segment.path for segment in store.segments}
        # The spare segment is in no set yet.
        there = all(path in kept or path > max(kept) for path in segments(store.directory))
        dead = [
            segment for segment in store.segments if segment.sealed is not None and not segment.live_count
        ]
        return there and not dead and [segment.sealed for segment in store.segments].count(None) == 1

    await until(quiet)


def crash_copy(folder: Path, copy: Path) -> Path:
    """The folder as a killed process leaves it, while the store goes on in the original."""
    (copy / "segments").mkdir(parents=True)
    roster = folder / "ROSTER"
    while True:
        listed = roster.read_bytes()
        for path in [folder / "FORMAT", folder / "INSTANCEID", *segments(folder)]:
            target = copy / path.relative_to(folder)
            with contextlib.suppress(FileNotFoundError):
                # Deleted since it was listed.
                target.write_bytes(path.read_bytes())
        if listed == roster.read_bytes():
            # The files are those of one moment: threads may make and delete segments meanwhile.
            (copy / roster.name).write_bytes(listed)
            return copy
        for path in segments(copy):
            path.unlink()


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flips one bit of a file."""
    fd = os.open(path, os.O_RDWR)
    try:
        byte = os.pread(fd, 1, offset)[0]
        os.pwrite(fd, bytes([byte ^ (1 << bit)]), offset)
    finally:
        os.close(fd)
