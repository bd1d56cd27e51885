"""When which table follows which list: with a worker that keeps its tables in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

import pytest

from fakes.metadata import FakeMetadataStore
from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.lake.lake_values import LakeError, ListVersion, LogFiles, Synced, TableStatus
from magnetar.lake.naming import table_name
from magnetar.lake.planning import plan
from magnetar.lake.process import At, LakeWorkers
from magnetar.lake.tables import LakeTables
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, encode, log_path
from magnetar.tiered.context import OffloadContext, OffloadedSegment

LOG = "public/default/persistent/t"
TOPIC = TopicName.parse("persistent://public/default/t")


class FakeTables:
    """Does what the worker does, by the same plans."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, tuple[ListVersion, frozenset[str]]]] = {}
        self.failures = 0
        self.gone: tuple[str, ...] = ()
        """Objects that are not there."""
        self.calls: list[str] = []
        self.before: Callable[[str], Coroutine[Any, Any, None]] | None = None

    async def call(self, what: str, at: At | None = None, **request: Any) -> Any:
        del at
        self.calls.append(what)
        if self.before is not None:
            await self.before(what)
        if self.failures:
            self.failures -= 1
            raise LakeError("the catalog is away")
        if what == "topics":
            return sorted(self.tables)
        if what == "sync":
            return asdict(self._sync(LogFiles.from_json(request["log"])))
        topic: str = request["topic"]
        if topic not in self.tables:
            return False if what == "drop" else None
        versions = {str(n): version.encode() for n, (version, _) in self.tables[topic].items()}
        if what == "drop":
            if versions != request["versions"]:
                return False
            del self.tables[topic]
            return True
        assert what == "status"
        return asdict(_status(topic, versions))

    def _sync(self, wanted: LogFiles) -> Synced:
        name = str(table_name(TopicName.parse(wanted.topic)))
        if wanted.topic not in self.tables and not wanted.files:
            return Synced("none", name)
        table = self.tables.setdefault(wanted.topic, {})
        known, files = table.get(wanted.partition, (None, frozenset[str]()))
        made = plan(wanted, files, known)
        if made.behind:
            return Synced("behind", name)
        if made.empty:
            return Synced("unchanged", name, gone=self.gone)
        table[wanted.partition] = (wanted.version, frozenset(file.path for file in wanted.files))
        return Synced("changed", name, len(made.add), len(made.remove), 1)

    async def close(self) -> None:
        """Nothing is held."""


def _status(topic: str, versions: Mapping[str, str]) -> TableStatus:
    return TableStatus(topic, "", "", 0, 0, 0, 0, None, None, 0, 0, versions)


class World:
    """A store, a worker and a room; background work runs when `settle` is called."""

    def __init__(self) -> None:
        self.store = FakeMetadataStore()
        self.tables = FakeTables()
        self.clock = ManualClock()
        self.work: list[Coroutine[Any, Any, None]] = []
        self.kept = LakeTables(
            store=self.store,
            workers=LakeWorkers(self.tables, self.tables),
            clock=self.clock,
            spawn=self.work.append,
            used=False,
        )

    async def settle(self) -> None:
        while self.work:
            await self.work.pop(0)

    async def keep(self, log_name: str, *ledgers: int, incomplete: int = 0) -> None:
        """The stored list of a log; each ledger's attempt has its number."""
        records = [LedgerRecord(number, 10, 100, 1, number, _context(number)) for number in ledgers]
        if incomplete:
            context = replace(_context(incomplete), complete=False, segments=())
            records.append(LedgerRecord(incomplete, 10, 100, 1, incomplete, context))
        await self.store.put(log_path(log_name), encode(LogMetadata(ledgers=tuple(records))))

    def files(self, topic: TopicName = TOPIC, partition: int = -1) -> set[int]:
        """Ledgers that a table names."""
        _, paths = self.tables.tables[str(topic)][partition]
        return {int(path.rpartition("/")[2][:19]) for path in paths}


def _context(number: int) -> OffloadContext:
    segments = (OffloadedSegment(0, 4, 50), OffloadedSegment(5, 9, 60))
    return OffloadContext(UUID(int=number), "file:///store", True, False, 1, segments)


def run(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story(World()))


def test_a_table_follows_its_list() -> None:
    async def story(world: World) -> None:
        await world.keep(LOG, 1, incomplete=2)
        world.kept.changed(LOG)
        await world.settle()
        assert world.files() == {1}
        await world.keep(LOG, 1, 2)
        world.kept.changed(LOG)
        world.kept.changed(LOG)
        await world.settle()
        assert world.files() == {1, 2}
        assert world.tables.calls == ["sync", "sync"]
        _, paths = world.tables.tables[str(TOPIC)][-1]
        assert min(paths) == (
            "file:///store/public/default/persistent/t/0000000000000000001-00000000-0000-0000-0000-000000000001"
            "-0000000000000000000-0000000000000000004.parquet"
        )

    run(story)


def test_retired_files_leave_before_their_objects() -> None:
    async def story(world: World) -> None:
        await world.keep(LOG, 1, 2)
        await world.kept.sync(LOG)
        await world.kept.retire(LOG, [UUID(int=1)])
        assert world.files() == {2}
        # The list still names it; no process brings it back while it does.
        await world.kept.sync(LOG)
        assert world.files() == {2}
        await world.keep(LOG, 2, 3)
        await world.kept.sync(LOG)
        assert world.files() == {2, 3}

    run(story)


def test_who_retires_brings_nothing_back_that_another_one_retired() -> None:
    """A copy is about to be made anew while retention deletes another one, by one version of the list."""

    async def story(world: World) -> None:
        await world.keep(LOG, 1, 2)
        await world.kept.sync(LOG)
        await world.keep(LOG, 2, 3)
        await world.kept.retire(LOG, [UUID(int=2)])
        await world.kept.retire(LOG, [UUID(int=1)])
        assert world.files() == {3}

    run(story)


def test_nothing_is_deleted_while_the_catalog_is_away() -> None:
    async def story(world: World) -> None:
        await world.keep(LOG, 1)
        await world.kept.sync(LOG)
        world.tables.failures = 1
        with pytest.raises(LakeError):
            await world.kept.retire(LOG, [UUID(int=1)])
        assert world.files() == {1}

    run(story)


def test_what_fails_is_tried_again() -> None:
    async def story(world: World) -> None:
        await world.keep(LOG, 1)
        world.tables.failures = 1
        world.kept.changed(LOG)
        await world.settle()
        assert world.kept.errors == {LOG: "the catalog is away"}
        await world.kept.round()
        await world.settle()
        assert len(world.tables.calls) == 1, "not before the pause is over"
        world.clock.advance(30_000)
        await world.kept.round()
        await world.settle()
        assert world.kept.errors == {}
        assert world.files() == {1}

    run(story)


def test_objects_that_are_gone_are_named() -> None:
    """In the log, in the table's status and in a metric, until they are back."""

    async def story(world: World) -> None:
        await world.keep(LOG, 1, 2)
        await world.kept.sync(LOG)
        world.tables.gone = ("file:///store/a", "file:///store/b")
        world.kept.changed(LOG)
        await world.settle()
        assert "2 objects" in world.kept.errors[LOG]
        assert "file:///store/a, file:///store/b" in world.kept.errors[LOG]
        assert world.kept.figures.gone == {LOG: 2}
        # What is to be deleted is deleted all the same.
        await world.kept.retire(LOG, [UUID(int=1)])
        world.tables.gone = ()
        world.clock.advance(60_000)
        await world.kept.round()
        await world.settle()
        assert (world.kept.errors, world.kept.figures.gone) == ({}, {})

    run(story)


def test_a_list_that_changes_meanwhile_is_read_anew() -> None:
    async def story(world: World) -> None:
        await world.keep(LOG, 1)
        await world.kept.sync(LOG)

        async def meanwhile(what: str) -> None:
            world.tables.before = None
            await world.keep(LOG, 1, 2, 3)
            await world.keep(LOG, 2, 3)
            await world.kept.retire(LOG, [UUID(int=1)])

        await world.keep(LOG, 1, 2)
        world.tables.before = meanwhile
        await world.kept.sync(LOG)
        assert world.files() == {2, 3}

    run(story)


def test_the_table_goes_with_the_last_partition() -> None:
    async def story(world: World) -> None:
        logs = [TOPIC.with_partition(number).log_name for number in range(2)]
        for number, log_name in enumerate(logs):
            await world.keep(log_name, number + 1)
            await world.kept.sync(log_name)
        for number, log_name in enumerate(logs):
            await world.kept.retire(log_name, [UUID(int=number + 1)])
            await world.store.delete_recursive(log_path(log_name))
            world.kept.changed(log_name)
            await world.settle()
            assert (str(TOPIC) in world.tables.tables) == (number == 0)

    run(story)


def test_a_topic_that_is_made_again_keeps_its_table() -> None:
    """The old one was deleted, and before its table goes there is a new one with history."""

    async def story(world: World) -> None:
        await world.keep(LOG, 1)
        await world.kept.sync(LOG)
        await world.kept.retire(LOG, [UUID(int=1)])
        await world.store.delete_recursive(log_path(LOG))

        async def meanwhile(what: str) -> None:
            if what == "drop":
                world.tables.before = None
                await world.keep(LOG, 7)
                stat = (await world.store.get(log_path(LOG))).stat  # type: ignore[union-attr]  # just put
                newer = stat._replace(created_ms=stat.created_ms + 1)
                value = world.store.values[log_path(LOG)]
                world.store.values[log_path(LOG)] = replace(value, stat=newer)
                await world.kept.sync(LOG)

        world.tables.before = meanwhile
        world.kept.changed(LOG)
        await world.settle()
        assert world.files() == {7}

    run(story)


def test_a_look_finds_what_a_crash_left() -> None:
    async def story(world: World) -> None:
        other = TopicName.parse("persistent://public/default/gone")
        await world.kept.look()
        assert world.tables.calls == [], "nothing is asked where nothing was ever offloaded"
        await world.keep(LOG, 1)
        await world.keep("public/default/persistent/plain")
        world.tables.tables[str(other)] = {-1: (ListVersion(1, 1), frozenset())}
        await world.kept.look()
        await world.settle()
        assert world.files() == {1}
        assert str(other) not in world.tables.tables

    run(story)


def test_files_of_a_partition_that_is_gone_are_removed() -> None:
    async def story(world: World) -> None:
        log_name = TOPIC.with_partition(0).log_name
        await world.keep(log_name, 1)
        await world.kept.sync(log_name)
        table = world.tables.tables[str(TOPIC)]
        table[1] = (ListVersion(1, 1), frozenset({"file:///store/left"}))
        await world.kept.look()
        await world.settle()
        assert table[1][1] == frozenset()

    run(story)
