"""Which copies get a directory of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from magnetar.base.clock import ManualClock
from magnetar.runtime.threads import in_thread
from magnetar.tiered.api import LedgerMovedError, OffloadedLog, SealedLedger
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment, keys_name
from magnetar.tiered.key_merging import FAN_IN, KeyDirectories, blocks_to_merge
from magnetar.tiered.offloader import discard
from magnetar.tiered.parquet.parquet_history import KeySource, SegmentWorker
from magnetar.tiered.stores.memory import MemoryStore
from magnetar.tiered.stores.object_store import MEMORY_URL


def merged(count: int) -> list[int]:
    """Blocks after so many copies, newest first."""
    blocks: list[int] = []
    for _ in range(count):
        taken = blocks_to_merge(blocks)
        blocks = [1 + sum(blocks[:taken]), *blocks[taken:]]
    return blocks


def test_blocks_grow_by_powers_of_four() -> None:
    assert merged(3) == [1, 1, 1]
    assert merged(4) == [4]
    assert merged(15) == [1, 1, 1, 4, 4, 4]
    assert merged(16) == [16]
    assert merged(200) == [4, 4, 64, 64, 64]


def test_there_are_few_blocks_however_many_copies() -> None:
    assert all(len(merged(count)) <= 3 * 5 for count in range(1, 1000, 37))
    assert all(sum(merged(count)) == count for count in range(1, 200, 13))


def test_what_failed_once_is_made_up_for() -> None:
    """A directory that could not be made leaves smaller blocks, which the next one takes."""
    assert blocks_to_merge([1, 1, 1, 1, 1, 4, 4]) == 6
    assert blocks_to_merge([2, 1, 1]) == 0
    assert blocks_to_merge([1, 1, 1, 2, 3, 4]) == 6


class Log:
    """FAN_IN ledgers, each with a complete copy."""

    name = "public/default/persistent/t"
    open = True

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        contexts = [
            OffloadContext(
                UUID(int=number),
                MEMORY_URL,
                complete=True,
                segments=(OffloadedSegment(0, 9, 100), OffloadedSegment(10, 19, 50)),
            )
            for number in range(FAN_IN)
        ]
        self.ledgers = [SealedLedger(number, 20, 1000, 0, each) for number, each in enumerate(contexts)]

    def sealed(self) -> Sequence[SealedLedger]:
        return self.ledgers

    async def remember(self, ledger_id: int, known: OffloadContext | None, context: OffloadContext) -> None:
        if self.error is not None:
            raise self.error
        assert known == self.ledgers[ledger_id].offload
        self.ledgers[ledger_id] = SealedLedger(ledger_id, 20, 1000, 0, context)


class Merger:
    """A worker that merges nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sources: Sequence[KeySource] = ()

    async def merge_keys(self, sources: Sequence[KeySource], path: str) -> int:
        self.sources = sources
        if self.size:
            await in_thread(lambda: Path(path).write_bytes(bytes(self.size)))
        return self.size


def added(log: Log, worker: Merger, store: MemoryStore, folder: Path) -> OffloadedCopy:
    """The newest copy after its turn for a directory."""
    directories = KeyDirectories(
        worker=lambda: cast("SegmentWorker", worker), store=lambda url: store, work_dir=folder
    )
    asyncio.run(directories.add(cast("OffloadedLog", log), FAN_IN - 1))
    assert list(folder.iterdir()) == [], "what was uploaded is not kept here"
    context = log.ledgers[-1].offload
    assert context is not None
    return OffloadedCopy(FAN_IN - 1, context)


def test_a_directory_names_the_segments_of_four_copies(tmp_path: Path) -> None:
    log, worker, store = Log(), Merger(7), MemoryStore(ManualClock())
    copy = added(log, worker, store, tmp_path)
    assert copy.context.keys == (7, FAN_IN)
    assert list(store.objects) == [keys_name(log.name, copy)]
    named: list[Any] = [source.segment for source in worker.sources]
    assert [(place.ledger_id, place.first_entry) for place in named] == [
        (ledger, first) for ledger in reversed(range(FAN_IN)) for first in (0, 10)
    ]


def test_one_that_the_list_does_not_name_goes_with_its_copy(tmp_path: Path) -> None:
    """A crash, or another owner, between the upload and the list."""
    log, store = Log(LedgerMovedError("another owner")), MemoryStore(ManualClock())
    copy = added(log, Merger(7), store, tmp_path)
    assert copy.context.keys is None
    assert len(store.objects) == 1
    asyncio.run(discard(log.name, copy, store))
    assert not store.objects


def test_too_many_keys_leave_nothing(tmp_path: Path) -> None:
    store = MemoryStore(ManualClock())
    assert added(Log(), Merger(0), store, tmp_path).context.keys is None
    assert not store.objects
