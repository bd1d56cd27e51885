"""Ledgers that a crash leaves: those that no list names go, all others stay, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.managed_logs import Process, Recorder, read_all
from magnetar.base.ids import EARLIEST
from magnetar.broker.compaction.job import CompactionStatus
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_metadata import log_path
from magnetar.managedlog.orphans import OrphanSearch, named_ledgers
from magnetar.metadata.keys import UNNAMED_LEDGERS
from magnetar.metadata.trust import MetadataTrust
from property.test_compaction import entry_of, read, room_of

_TRUSTED = MetadataTrust()
STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "ack", "compact", "crash", "look"]), st.integers(0, 40)),
    max_size=20,
)


def search_of(process: Process, trust: MetadataTrust = _TRUSTED) -> OrphanSearch:
    async def listing() -> AsyncIterator[tuple[int, Mapping[str, bytes]]]:
        for ledger_id, ledger in list(process.ledgers.ledgers.items()):
            yield ledger_id, ledger.custom_metadata

    return OrphanSearch(process.store, process.ledgers, listing, trust, grace_s=1_200, interval_s=600)


async def opened(process: Process) -> tuple[ManagedLog, Recorder]:
    log, listener = await process.open()
    await log.open_cursor(COMPACTION_CURSOR, initial="earliest")
    await log.open_cursor("s", initial="earliest")
    return log, listener


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_only_what_nobody_names_is_deleted(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    process = Process(entries_max_per_ledger=2)
    log, _ = await opened(process)
    room = room_of(process, log)
    await room.load()
    search = search_of(process)
    for kind, number in steps:
        if kind == "publish":
            stored, count = entry_of("single", [(f"k{number % 3}", False)], [b"%d" % number])
            log.append([stored], [count])
        elif kind == "ack":
            log.cursors["s"].ack_cumulative(log.last_position)
        elif kind == "compact" and room.status is not CompactionStatus.RUNNING:
            room.start()
        elif kind == "look":
            await search.round()
        for _ in range(number):
            await asyncio.sleep(0)
        if kind == "crash":
            process = await process.crash()
            log, _ = await opened(process)
            room = room_of(process, log)
            await room.load()
            search = search_of(process)
    await process.settle()
    before = await read(room), [run.entries for run in await read_all(log)]
    search = search_of(process)
    for _ in range(3):
        await search.round()
    # What is noted as deleted is named, and may be gone.
    assert set(process.ledgers.ledgers) <= await named_ledgers(process.store)
    assert (await read(room), [run.entries for run in await read_all(log)]) == before
    process = await (await process.crash()).restart()
    log, _ = await opened(process)
    room = room_of(process, log)
    await room.load()
    assert await read(room) == before[0]
    assert log.first_position > EARLIEST
    await process.logs.close()


def test_a_value_that_cannot_be_read_ends_the_search() -> None:
    async def story() -> None:
        process = Process()
        await opened(process)
        listener = Recorder()
        orphan = await process.ledgers.create(
            listener,  # type: ignore[arg-type]  # nothing is written
            {"application": b"pulsar", "component": b"managed-ledger"},
        )
        foreign = await process.ledgers.create(
            listener,  # type: ignore[arg-type]  # nothing is written
            {"application": b"other"},
        )
        search = search_of(process)
        await search.round()
        path = f"{log_path('public/default/persistent/t')}/damaged"
        await process.store.put(path, b"\xff\xff")
        with pytest.raises(InvalidLogDataError):
            await search.round()
        assert orphan.ledger_id in process.ledgers.ledgers
        await process.store.delete(path)
        await search.round()
        assert not search.deleted
        await search.round()
        assert search.deleted == 1
        assert not await process.store.exists(UNNAMED_LEDGERS)
        assert orphan.ledger_id not in process.ledgers.ledgers
        assert foreign.ledger_id in process.ledgers.ledgers
        await process.logs.close()

    asyncio.run(story())


def test_messages_of_a_topic_whose_value_was_lost_are_kept_for_the_grace_period() -> None:
    async def story() -> None:
        process = Process()
        log, _ = await opened(process)
        log.append([b"message"], None)
        await process.settle()
        path = log_path("public/default/persistent/t")
        value = await process.store.get(path)
        assert value is not None
        [held] = await named_ledgers(process.store) - {-1}
        await process.store.delete_recursive(path)
        trust = MetadataTrust()
        for _ in range(3):
            # A restart does not begin the period anew, and does not end it.
            search = search_of(process, trust)
            await search.round()
        await search.round()
        assert held in process.ledgers.ledgers
        trust.doubted("test", "an older copy")
        for _ in range(5):
            await search.round()
        assert held in process.ledgers.ledgers
        await process.store.put(path, value.data)
        await search.round()
        trust.cleared("test")
        await search.round()
        assert held in process.ledgers.ledgers
        assert not search.deleted

    asyncio.run(story())
