"""Embedded ledgers over a real segment store in a temporary folder and the metadata store in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError, LedgerError, StorageFailedError
from magnetar.bookie.blocks import HEADER_BYTES
from magnetar.bookie.segment import DATA_OFFSET, TRAILER_BYTES
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.ledger.api import (
    LedgerClosedError,
    LedgerEnd,
    LedgerFencedError,
    Ledgers,
    LedgerWriteError,
    LedgerWriter,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.ledger.ledger_metadata import LedgerState, decode_ledger_metadata
from magnetar.ledger.paths import ID_GENERATOR, ledger_path
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.runtime.syncer import InlineSyncer, Syncer


class Marks:
    """A listener that remembers, and wakes a test that waits for a mark."""

    def __init__(self) -> None:
        self.last = -1
        self.error: LedgerError | None = None
        self.changed = asyncio.Event()

    def durable(self, last_entry: int) -> None:
        assert last_entry > self.last
        assert self.error is None
        self.last = last_entry
        self.changed.set()

    def failed(self, error: LedgerError) -> None:
        assert self.error is None
        self.error = error
        self.changed.set()

    async def reached(self, entry: int) -> None:
        while self.last < entry and self.error is None:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)
        assert self.error is None


class World:
    """One process after another on the same folder and metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.metadata = MemoryMetadataStore(self.clock)

    @asynccontextmanager
    async def process(self, *, syncer: Syncer | None = None) -> AsyncIterator[EmbeddedLedgers]:
        store = await SegmentStore.open(
            self.folder,
            options=StoreOptions(segment_bytes=1 << 20),
            durability=Durability.VOLATILE,
            syncer=syncer,
        )
        try:
            yield EmbeddedLedgers(store, self.metadata, self.clock)
        finally:
            store.check()
            await store.close()


def run(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(World(folder))

    asyncio.run(main())


def test_what_is_durable_can_be_read_from_the_open_ledger(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            contract: Ledgers = ledgers
            marks = Marks()
            writer: LedgerWriter = await contract.create(marks, {"application": b"pulsar"})
            assert writer.append([b"a", b"bb"], None, 7, 1000) == 0
            assert writer.append([b"ccc"], [5], 9, 1001) == 2
            assert (writer.last_pushed, writer.last_entry, writer.pending_bytes) == (2, -1, 6)
            with pytest.raises(NoSuchEntryError):
                writer.read_now(0, 0, 10)
            await marks.reached(2)
            assert (writer.last_entry, writer.length_bytes, writer.pending_bytes) == (2, 6, 0)
            first, second = await writer.read(0, 2, 1 << 20)
            assert (first.entries, first.counts, first.base_index, first.broker_time_ms) == (
                [b"a", b"bb"],
                None,
                7,
                1000,
            )
            assert (second.first_entry, second.entries, second.counts) == (2, [b"ccc"], [5])
            assert second.base_index == 9

    run(tmp_path, story)


def test_a_writer_that_is_closed_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Its listener holds it, as those of logs and cursors do."""

    class Holder(Marks):
        writer: LedgerWriter

    async def story(world: World) -> None:
        async with world.process() as ledgers:
            holder = Holder()
            holder.writer = await ledgers.create(holder, {})
            holder.writer.append([b"a"], None, 0, 1000)
            await holder.writer.close()
            held, freed = weakref.ref(holder.writer), weakref.ref(holder)
            del holder
            await asyncio.sleep(0)
            assert (held(), freed()) == (None, None)

    gc.collect()
    gc.disable()
    try:
        run(tmp_path, story)
    finally:
        gc.enable()


def test_close_waits_for_what_was_appended_and_seals(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            writer = await ledgers.create(Marks(), {"k": b"v"})
            writer.append([b"xyz"] * 10, None, 0, 1)
            assert await writer.close() == LedgerEnd(9, 30)
            assert await writer.close() == LedgerEnd(9, 30)
            with pytest.raises(LedgerClosedError):
                writer.append([b"late"], None, 10, 1)
            value = await world.metadata.get(ledger_path(writer.ledger_id))
            assert value is not None
            metadata = decode_ledger_metadata(value.data)
            assert (metadata.state, metadata.end) == (LedgerState.CLOSED, LedgerEnd(9, 30))
            assert metadata.custom == {"k": b"v"}
            reader = await ledgers.open(writer.ledger_id)
            assert (reader.last_entry, reader.length_bytes) == (9, 30)
            assert [run.entries for run in await reader.read(4, 100, 7)] == [[b"xyz"] * 2]

    run(tmp_path, story)


def test_a_ledger_left_open_is_recovered_and_closed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            empty = await ledgers.create(Marks(), {})
            writer.append([b"xyz"] * 10, None, 0, 1)
            await marks.reached(9)
        async with world.process() as ledgers:
            reader = await ledgers.open(writer.ledger_id)
            assert (reader.last_entry, reader.length_bytes) == (9, 30)
            assert (await ledgers.open(empty.ledger_id)).last_entry == -1
            value = await world.metadata.get(ledger_path(writer.ledger_id))
            assert value is not None
            assert decode_ledger_metadata(value.data).end == LedgerEnd(9, 30)

    run(tmp_path, story)


def test_opening_fences_a_live_writer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            writer.append([b"1"], None, 0, 1)
            reader = await ledgers.open(writer.ledger_id)
            assert (reader.last_entry, marks.last) == (0, 0)
            assert isinstance(marks.error, LedgerFencedError)
            with pytest.raises(LedgerFencedError):
                writer.append([b"2"], None, 1, 1)
            with pytest.raises(LedgerFencedError):
                await writer.close()

    run(tmp_path, story)


def test_ids_increase_and_are_never_used_twice(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        seen: list[int] = []
        for _ in range(3):
            async with world.process() as ledgers:
                created = await asyncio.gather(*(ledgers.create(Marks(), {}) for _ in range(300)))
                seen += sorted(writer.ledger_id for writer in created)
                await ledgers.delete(seen[-1])
                following = await ledgers.create(Marks(), {})
                assert following.ledger_id > seen[-1]
                seen.append(following.ledger_id)
        assert seen == sorted(set(seen))
        generator = await world.metadata.get(ID_GENERATOR)
        assert generator is not None
        assert generator.stat.version < 10  # ranges, not a write per ledger

    run(tmp_path, story)


def test_an_id_that_somebody_else_took_is_passed_over(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.metadata.put(ledger_path(1), b"theirs")
        await world.metadata.put(ledger_path(3), b"theirs")
        async with world.process() as ledgers:
            ids = [(await ledgers.create(Marks(), {})).ledger_id for _ in range(3)]
            assert ids == [2, 4, 5]

    run(tmp_path, story)


def test_deleted_ledgers_are_gone_for_everybody(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            writer = await ledgers.create(Marks(), {})
            kept = await ledgers.create(Marks(), {})
            writer.append([b"1"], None, 0, 1)
            kept.append([b"2"], None, 0, 1)
            await asyncio.gather(writer.close(), kept.close())
            reader = await ledgers.open(writer.ledger_id)
            await ledgers.delete(writer.ledger_id)
            await ledgers.delete(writer.ledger_id)
            with pytest.raises(NoSuchLedgerError):
                reader.read_now(0, 0, 1)
            with pytest.raises(NoSuchLedgerError):
                await reader.read(0, 0, 1)
            with pytest.raises(NoSuchLedgerError):
                await ledgers.open(writer.ledger_id)
        async with world.process() as ledgers:
            with pytest.raises(NoSuchLedgerError):
                await ledgers.open(writer.ledger_id)
            assert ledgers.store.ledger_ids() == {kept.ledger_id}

    run(tmp_path, story)


def test_an_open_ledger_can_be_deleted_under_its_writer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            writer.append([b"1"], None, 0, 1)
            await ledgers.delete(writer.ledger_id)
            assert isinstance(marks.error, LedgerFencedError)
            with pytest.raises(LedgerFencedError):
                writer.append([b"2"], None, 1, 1)
            assert ledgers.store.ledger_ids() == set()

    run(tmp_path, story)


def test_listeners_may_append_when_they_are_told(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        class Chain(Marks):
            writer: Any = None

            def durable(self, last_entry: int) -> None:
                super().durable(last_entry)
                if last_entry < 20:
                    self.writer.append([b"next"], None, last_entry + 1, 1)

        async with world.process() as ledgers:
            chain = Chain()
            chain.writer = await ledgers.create(chain, {})
            chain.writer.append([b"first"], None, 0, 1)
            await chain.reached(20)

    run(tmp_path, story)


def test_a_failed_sync_fails_the_writer_with_its_cause(tmp_path: Path) -> None:
    class Broken(InlineSyncer):
        def _sync_file(self, fd: int) -> None:
            raise OSError(5, "injected")

    async def story(world: World) -> None:
        async with world.process(syncer=Broken()) as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            other = await ledgers.create(Marks(), {})
            writer.append([b"lost"], None, 0, 1)
            with pytest.raises(LedgerWriteError):
                await writer.close()
            with pytest.raises(LedgerWriteError):
                other.append([b"more"], None, 0, 1)
            assert isinstance(marks.error, LedgerWriteError)
            assert isinstance(marks.error.__cause__, StorageFailedError)
            assert (marks.last, writer.last_entry) == (-1, -1)
            with pytest.raises(LedgerWriteError):
                await ledgers.create(Marks(), {})

    run(tmp_path, story)


def damage(folder: Path, offset: int, length: int) -> None:
    """Wipes bytes of the only segment, and its trailer, so that it is scanned."""
    (path,) = (folder / "segments").glob("*.seg")
    data = bytearray(path.read_bytes())
    data[offset : offset + length] = bytes(length)
    data[-TRAILER_BYTES:] = bytes(TRAILER_BYTES)
    path.write_bytes(data)


async def three_open_ledgers(world: World) -> list[int]:
    """Ledgers of one entry of 100 bytes each, left open, one behind the other on the disk."""
    async with world.process() as ledgers:
        ids: list[int] = []
        for _ in range(3):
            marks = Marks()
            writer = await ledgers.create(marks, {})
            writer.append([bytes(100)], None, 0, 1)
            await marks.reached(0)
            ids.append(writer.ledger_id)
    return ids


BLOCK_BYTES = HEADER_BYTES + 4 + 100


def test_lost_entries_at_the_end_of_an_open_ledger_are_known_to_be_lost(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        first, second, third = await three_open_ledgers(world)
        damage(tmp_path, DATA_OFFSET + BLOCK_BYTES, 40)
        async with world.process() as ledgers:
            assert (await ledgers.open(first)).last_entry == 0
            assert (await ledgers.open(third)).last_entry == 0
            reader = await ledgers.open(second)
            assert reader.last_entry == 0
            with pytest.raises(CorruptDataError, match=f"ledger {second}"):
                await reader.read(0, 0, 100)

    run(tmp_path, story)


def test_a_ledger_whose_end_is_uncertain_is_closed_at_what_is_left_and_says_so_for_ever(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        first, second, third = await three_open_ledgers(world)
        damage(tmp_path, DATA_OFFSET, 2 * BLOCK_BYTES)
        async with world.process() as ledgers:
            assert (await ledgers.open(third)).last_entry == 0
            assert (await ledgers.open(second)).last_entry == 0  # named by the block behind it
            assert (await ledgers.open(first)).last_entry == -1
        async with world.process() as ledgers:
            reader = await ledgers.open(first)
            assert reader.last_entry == -1
            assert f"ledger {first}: the ledger's last entries may have been here" in reader.loss
            with pytest.raises(CorruptDataError, match="entry 0 may have been lost"):
                await reader.read(0, 0, 100)
            assert (await ledgers.open(third)).loss == ""

    run(tmp_path, story)


def test_what_is_opened_to_be_replaced_costs_no_write_and_can_be_closed_later(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            writer.append([b"1", b"2"], None, 0, 1)
            await marks.reached(1)
        path = ledger_path(writer.ledger_id)
        before = await world.metadata.get(path)
        assert before is not None
        for _ in range(2):
            async with world.process() as ledgers:
                reader = await ledgers.open(writer.ledger_id, to_replace=True)
                assert [run.entries for run in await reader.read(0, 1, 100)] == [[b"1", b"2"]]
                assert reader.last_entry == 1
                assert await world.metadata.get(path) == before
        async with world.process() as ledgers:
            assert (await ledgers.open(writer.ledger_id)).last_entry == 1
        after = await world.metadata.get(path)
        assert after is not None
        assert decode_ledger_metadata(after.data).state is LedgerState.CLOSED

    run(tmp_path, story)
