"""What the managed log relies on, asked of the embedded ledgers and of those on bookies over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.entries import EntryRun
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.ledger.api import (
    Copies,
    LedgerClosedError,
    LedgerEnd,
    LedgerFencedError,
    LedgerReader,
    Ledgers,
    LedgerWriteError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers, TooFewBookiesError
from magnetar.metadata.memory import MemoryMetadataStore
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.ledger_clusters import Marks

pytestmark = pytest.mark.one_process("own")

Process = Callable[[], AbstractAsyncContextManager[Ledgers]]
"""A process that uses ledgers; what is open at its end was left by a crash. Processes of one world follow
each other."""


@asynccontextmanager
async def embedded_world(folder: Path) -> AsyncIterator[Process]:
    clock = ManualClock()
    metadata = MemoryMetadataStore(clock)

    @asynccontextmanager
    async def process() -> AsyncIterator[EmbeddedLedgers]:
        store = await SegmentStore.open(
            folder, options=StoreOptions(segment_bytes=1 << 20), durability=Durability.VOLATILE
        )
        try:
            yield EmbeddedLedgers(store, metadata, clock)
        finally:
            await store.close()

    yield process


@asynccontextmanager
async def remote_world(folder: Path, layout: QuorumLayout) -> AsyncIterator[Process]:
    async with bookie_nodes(folder) as cluster:
        yield lambda: cluster.ledgers(layout)


WORLDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Process]]] = {
    "embedded": embedded_world,
    "one copy": lambda folder: remote_world(folder, QuorumLayout(1, 1, 1)),
    "three copies": lambda folder: remote_world(folder, QuorumLayout(3, 3, 2)),
    "striped": lambda folder: remote_world(folder, QuorumLayout(3, 2, 2)),
}
Story = Callable[[Process], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=list(WORLDS))
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """Runs a story in each world."""

    def told(story: Story) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), WORLDS[request.param](tmp_path) as process:
                await story(process)

        asyncio.run(main())

    return told


async def read_all(reader: LedgerReader, bytes_max: int = 1 << 16) -> list[EntryRun]:
    out: list[EntryRun] = []
    next_entry = 0
    while next_entry <= reader.last_entry:
        for run in await reader.read(next_entry, reader.last_entry, bytes_max):
            assert run.first_entry == next_entry
            assert run.ledger_id == reader.ledger_id
            next_entry = run.last_entry + 1
            out.append(run)
    return out


def messages(runs: list[EntryRun]) -> list[tuple[bytes, int, int, int]]:
    """Bytes, first index, messages and time of each entry."""
    out = []
    for run in runs:
        index = run.base_index
        for row, entry in enumerate(run.entries):
            out.append((entry, index, run.count_of(row), run.broker_time_ms))
            index += run.count_of(row)
    return out


def test_what_is_durable_is_read_with_its_index_and_time(tell: Tell) -> None:
    async def story(process: Process) -> None:
        async with process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {"application": b"pulsar"})
            assert (writer.last_pushed, writer.last_entry, writer.pending_bytes) == (-1, -1, 0)
            assert writer.append([b"a", b"bb"], None, 7, 1000) == 0
            assert writer.append([b"ccc"], [5], 9, 1001) == 2
            assert writer.append([b"x" * 5000] * 300, None, 14, 1002) == 3
            assert (writer.last_pushed, writer.last_entry) == (302, -1)
            assert writer.pending_bytes >= 1_500_006
            with pytest.raises(NoSuchEntryError):
                writer.read_now(0, 0, 10)
            await marks.reach(302)
            assert (writer.last_entry, writer.pending_bytes) == (302, 0)
            assert writer.length_bytes >= 1_500_006
            expected = [(b"a", 7, 1, 1000), (b"bb", 8, 1, 1000), (b"ccc", 9, 5, 1001)]
            expected += [(b"x" * 5000, 14 + row, 1, 1002) for row in range(300)]
            assert messages(await read_all(writer)) == expected
            assert len(messages(await writer.read(1, 302, 1))) == 1
            end = await writer.close()
            assert end == LedgerEnd(302, writer.length_bytes)
            reader = await ledgers.open(writer.ledger_id)
            assert (reader.last_entry, reader.length_bytes) == (302, end.length_bytes)
            assert messages(await read_all(reader)) == expected
            now = reader.read_now(1, 2, 1 << 20)
            assert now is None or messages(now) == expected[1:3]
            with pytest.raises(NoSuchEntryError):
                await reader.read(303, 303, 1)

    tell(story)


def test_close_seals_once(tell: Tell) -> None:
    async def story(process: Process) -> None:
        async with process() as ledgers:
            writer = await ledgers.create(Marks(), {})
            writer.append([b"xyz"] * 10, None, 0, 1)
            first, second = await asyncio.gather(writer.close(), writer.close())
            assert first == second == await writer.close()
            assert first.last_entry == 9
            with pytest.raises(LedgerClosedError):
                writer.append([b"late"], None, 10, 1)
            empty = await ledgers.create(Marks(), {})
            assert await empty.close() == LedgerEnd(-1, 0)
            assert (await ledgers.open(empty.ledger_id)).last_entry == -1

    tell(story)


def test_a_ledger_left_open_is_recovered_with_all_that_was_durable(tell: Tell) -> None:
    async def story(process: Process) -> None:
        async with process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            empty = await ledgers.create(Marks(), {})
            for index in range(0, 50, 10):
                writer.append([b"xyz"] * 10, None, index, 1)
            await marks.reach(49)
        async with process() as ledgers:
            reader = await ledgers.open(writer.ledger_id)
            assert reader.last_entry == 49
            assert [index for _, index, _, _ in messages(await read_all(reader))] == list(range(50))
            assert (await ledgers.open(empty.ledger_id)).last_entry == -1
        async with process() as ledgers:
            again = await ledgers.open(writer.ledger_id)
            assert (again.last_entry, again.length_bytes) == (49, reader.length_bytes)

    tell(story)


def test_opening_fences_a_live_writer(tell: Tell) -> None:
    async def story(process: Process) -> None:
        async with process() as ledgers:
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

    tell(story)


def test_ids_increase(tell: Tell) -> None:
    async def story(process: Process) -> None:
        seen: list[int] = []
        for _ in range(2):
            async with process() as ledgers:
                created = await asyncio.gather(*(ledgers.create(Marks(), {}) for _ in range(20)))
                seen += sorted(writer.ledger_id for writer in created)
                await ledgers.delete(seen[-1])
                seen.append((await ledgers.create(Marks(), {})).ledger_id)
        assert seen == sorted(set(seen))

    tell(story)


def test_deleted_ledgers_are_gone(tell: Tell) -> None:
    async def story(process: Process) -> None:
        async with process() as ledgers:
            marks = Marks()
            writer = await ledgers.create(Marks(), {})
            live = await ledgers.create(marks, {})
            for each in (writer, live):
                each.append([b"1"], None, 0, 1)
            await writer.close()
            reader = await ledgers.open(writer.ledger_id)
            for ledger_id in (writer.ledger_id, writer.ledger_id, live.ledger_id):
                await ledgers.delete(ledger_id)
            assert isinstance(marks.error, LedgerFencedError)
            with pytest.raises(LedgerFencedError):
                live.append([b"2"], None, 1, 1)
            with pytest.raises(NoSuchLedgerError):
                reader.read_now(0, 0, 1)
            with pytest.raises(NoSuchLedgerError):
                await reader.read(0, 0, 1)
        async with process() as ledgers:
            for ledger_id in (writer.ledger_id, live.ledger_id):
                with pytest.raises(NoSuchLedgerError):
                    await ledgers.open(ledger_id)

    tell(story)


def test_tags_are_kept(tell: Tell) -> None:
    async def story(process: Process) -> None:
        tags = {"application": b"pulsar", "pulsar/cursor": b"sub"}
        async with process() as ledgers:
            assert isinstance(ledgers, EmbeddedLedgers | RemoteLedgers)
            ids = [(await ledgers.create(Marks(), tags)).ledger_id for _ in range(3)]
            await ledgers.delete(ids[1])
            found = [(ledger_id, dict(custom)) async for ledger_id, custom in ledgers.tagged()]
            assert sorted(found) == [(ids[0], tags), (ids[2], tags)]

    tell(story)


def test_listeners_may_append_when_they_are_told(tell: Tell) -> None:
    async def story(process: Process) -> None:
        class Chain(Marks):
            writer: Any = None

            def durable(self, last_entry: int) -> None:
                super().durable(last_entry)
                if last_entry < 20:
                    self.writer.append([b"next"], None, last_entry + 1, 1)

        async with process() as ledgers:
            chain = Chain()
            chain.writer = await ledgers.create(chain, {})
            chain.writer.append([b"first"], None, 0, 1)
            await chain.reach(20)

    tell(story)


# -- what only several bookies have ------------------------------------------------------------------


def tell_of_bookies(folder: Path, story: Callable[[BookieNodes], Awaitable[None]], count: int = 3) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), bookie_nodes(folder, count) as cluster:
            await story(cluster)

    asyncio.run(main())


def test_too_few_bookies_are_said_with_what_to_do(tmp_path: Path) -> None:
    async def story(cluster: BookieNodes) -> None:
        async with cluster.ledgers(
            QuorumLayout(2, 2, 2), LedgerClientOptions(replacement_wait_s=0.0)
        ) as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            assert ledgers.has_room()
            await cluster.stop("a")
            with pytest.raises(TooFewBookiesError, match="needs 2 bookies, 1 take entries: start more"):
                await ledgers.create(Marks(), {})
            assert not ledgers.has_room()
            with pytest.raises(LedgerWriteError, match=r"too few bookies keep entries: .* start others"):
                await marks.reach(writer.append([b"lost"], None, 0, 1))
            await cluster.start("a")
            assert not ledgers.has_room(), "this call asks for a look"
            await ledgers.create(Marks(), {})
            assert (await ledgers.open(writer.ledger_id)).last_entry in (-1, 0)

    tell_of_bookies(tmp_path, story, count=2)


def test_a_bookie_that_comes_back_takes_its_own_place(tmp_path: Path) -> None:
    async def story(cluster: BookieNodes) -> None:
        async with cluster.ledgers(
            QuorumLayout(3, 3, 3), LedgerClientOptions(replacement_wait_s=50.0)
        ) as ledgers:
            marks = Marks()
            writer = await ledgers.create(marks, {})
            await marks.reach(writer.append([b"before"] * 10, None, 0, 1) + 9)
            for name in "abc":
                await cluster.stop(name)
                writer.append([b"while it is gone"] * 10, None, 0, 1)
                await cluster.start(name)
                writer.append([b"since it is back"] * 10, None, 0, 1)
                await marks.reach(writer.last_pushed)
            assert marks.error is None
            assert (await writer.close()).last_entry == 69
            reader = await ledgers.open(writer.ledger_id)
            assert sum(len(run.entries) for run in await read_all(reader)) == 70

    tell_of_bookies(tmp_path, story)


def test_another_process_takes_the_ledger_away(tmp_path: Path) -> None:
    async def story(cluster: BookieNodes) -> None:
        layout = QuorumLayout(3, 3, 2)
        async with AsyncExitStack() as stack:
            old = await stack.enter_async_context(cluster.ledgers(layout))
            new = await stack.enter_async_context(cluster.ledgers(layout))
            marks = Marks()
            writer = await old.create(marks, {})
            writer.append([b"1"] * 10, None, 0, 1)
            await marks.reach(9)
            reader = await new.open(writer.ledger_id)
            writer.append([b"too late"], None, 10, 1)
            with pytest.raises(LedgerFencedError):
                await marks.reach(10)
            with pytest.raises(LedgerFencedError):
                await writer.close()
            assert reader.last_entry == 9

    tell_of_bookies(tmp_path, story)


def test_a_ledger_lies_on_as_many_bookies_as_are_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with bookie_nodes(tmp_path) as cluster, cluster.ledgers(QuorumLayout(2, 2, 2)) as ledgers:
            for copies, expected in ((None, (2, 2, 2)), (Copies(3, 2, 1), (3, 2, 1))):
                writer = await ledgers.create(Marks(), {}, copies)
                stored = (await cluster.registry.read(writer.ledger_id)).metadata
                assert (stored.ensemble_size, stored.write_quorum, stored.ack_quorum) == expected
                await writer.close()
            with pytest.raises(TooFewBookiesError, match="4"):
                await ledgers.create(Marks(), {}, Copies(4, 4, 4))
            assert ledgers.has_room(), "for ledgers of the usual layout"

    asyncio.run(main())
