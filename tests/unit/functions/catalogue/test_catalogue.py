"""Functions are created once, changed by compare-and-set, and announced to workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue import catalogue as module
from magnetar.functions.catalogue.catalogue import Catalogue
from magnetar.functions.catalogue.instance_bounds import InstanceBounds
from magnetar.functions.catalogue.package_files import PackageFiles
from magnetar.functions.catalogue.records import FunctionRecord
from magnetar.functions.refusals import (
    FunctionExistsError,
    FunctionNotFoundError,
    FunctionsFullError,
    UnchangedFunctionError,
)
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.memory import MemoryMetadataStore
from support.functions import config, files_in, run, stored

N = NamespaceName("public", "default")


class Place:
    """A catalogue over a store in memory."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = MemoryMetadataStore(self.clock)
        self.files: PackageFiles = files_in(folder)
        self.catalogue = Catalogue(self.store, self.files, self.clock)

    async def create(self, name: str = "ex", **more: object) -> FunctionRecord:
        record = FunctionRecord(config(name=name, **more), await stored(self.files))
        await self.catalogue.create(N, record)
        return record


def with_place(folder: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def told() -> None:
        place = Place(folder)
        await place.files.open(())
        await story(place)
        place.catalogue.close()

    run(told)


def test_a_function_is_created_once(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        record = await place.create()
        with pytest.raises(FunctionExistsError, match="Function ex already exists"):
            await place.create()
        assert await place.catalogue.names(N) == ["ex"]
        found = await place.catalogue.get(N, "ex")
        assert (found.config, found.package) == (record.config, record.package)
        [function] = await place.catalogue.functions()
        assert record.package is not None
        assert (function.full_name, function.package) == (
            "public/default/ex",
            place.files.path(record.package),
        )

    with_place(tmp_path, story)


def test_a_name_may_hold_anything_but_a_slash(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.create("a b%2F\N{SNOWMAN}")
        assert await place.catalogue.names(N) == ["a b%2F\N{SNOWMAN}"]
        assert (await place.catalogue.functions())[0].name == "a b%2F\N{SNOWMAN}"

    with_place(tmp_path, story)


def test_a_namespace_has_a_bounded_number_of_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FUNCTIONS_MAX", 1)

    async def story(place: Place) -> None:
        await place.create()
        with pytest.raises(FunctionsFullError, match="has 1 functions"):
            await place.create("other")

    with_place(tmp_path, story)


def test_a_version_grows_also_over_a_deletion(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.create(parallelism=2)
        first = (await place.catalogue.get(N, "ex")).version
        await place.catalogue.update(N, "ex", lambda record: replace(record, config=config(parallelism=3)))
        second = (await place.catalogue.get(N, "ex")).version
        await place.catalogue.set_running(N, "ex", None, to=False)
        assert (await place.catalogue.get(N, "ex")).version == second, "nothing is to be replaced"
        place.clock.advance(10)
        await place.catalogue.delete(N, "ex")
        await place.create()
        assert first < second < (await place.catalogue.get(N, "ex")).version

    with_place(tmp_path, story)


def test_changes_of_two_callers_are_both_made(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.create(parallelism=2)
        calls = 0

        def slow(record: FunctionRecord) -> FunctionRecord:
            nonlocal calls
            calls += 1
            return replace(record, source=f"seen {sorted(record.stopped)}")

        put, raced = place.store.put, False

        async def racing(path: str, data: bytes, **options: object) -> object:
            nonlocal raced
            if not raced:
                raced = True
                await place.catalogue.set_running(N, "ex", 1, to=False)
            return await put(path, data, **options)  # type: ignore[arg-type]  # passed on as they came

        place.store.put = racing  # type: ignore[method-assign,assignment]  # another caller comes between
        await place.catalogue.update(N, "ex", slow)
        found = await place.catalogue.get(N, "ex")
        assert (found.source, found.stopped, calls) == ("seen [1]", {1}, 2)

    with_place(tmp_path, story)


def test_instances_are_started_and_stopped_as_pulsar_allows(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        running = place.catalogue.set_running

        async def refused(instance: int | None, *, to: bool) -> None:
            with pytest.raises(UnchangedFunctionError, match="Operation not permitted"):
                await running(N, "ex", instance, to=to)

        await place.create(parallelism=3)
        await refused(None, to=True)
        await refused(0, to=True)
        await refused(3, to=False)
        await running(N, "ex", 1, to=False)
        await refused(1, to=False)
        assert (await place.catalogue.functions())[0].stopped == {1}
        await running(N, "ex", None, to=False)
        await refused(None, to=False)
        await running(N, "ex", 0, to=True)
        await place.catalogue.update(N, "ex", lambda record: replace(record, config=config(parallelism=2)))
        assert (await place.catalogue.get(N, "ex")).stopped == {1}, "instances that are gone are not stopped"
        await running(N, "ex", None, to=True)
        await refused(None, to=True)

    with_place(tmp_path, story)


def test_workers_are_told_of_changes(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        for act in (
            place.create,
            lambda: place.catalogue.set_running(N, "ex", None, to=False),
            lambda: place.catalogue.delete(N, "ex"),
        ):
            waiting = asyncio.ensure_future(place.catalogue.changed())
            await act()
            await asyncio.wait_for(waiting, 5)
        waiting = asyncio.ensure_future(place.catalogue.changed())
        await place.store.put("/elsewhere", b"")
        assert not waiting.done()
        waiting.cancel()

    with_place(tmp_path, story)


def test_a_damaged_record_keeps_no_other_function_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(place: Place) -> None:
        await place.create()
        await place.store.put(keys.function(N, "bad"), b"{")
        with caplog.at_level(logging.ERROR, "magnetar.functions"):
            assert [each.name for each in await place.catalogue.functions()] == ["ex"]
            await place.catalogue.functions()
        assert len(caplog.records) == 1
        assert keys.function(N, "bad") in caplog.text
        with pytest.raises(DamagedDocumentError):
            await place.catalogue.get(N, "bad")
        await place.catalogue.delete(N, "bad")
        assert await place.catalogue.names(N) == ["ex"]

    with_place(tmp_path, story)


def test_a_deleted_function_takes_its_file_along(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.create()
        await place.catalogue.delete(N, "ex")
        assert list(place.files.folder.iterdir()) == []
        for call in (
            place.catalogue.delete(N, "ex"),
            place.catalogue.get(N, "ex"),
            place.catalogue.update(N, "ex", lambda record: record),
            place.catalogue.set_running(N, "ex", None, to=False),
        ):
            with pytest.raises(FunctionNotFoundError, match="Function ex doesn't exist"):
                await call

    with_place(tmp_path, story)


def test_a_tenant_has_so_many_instances(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.catalogue = Catalogue(place.store, place.files, place.clock, InstanceBounds(9, 4))
        await place.create("a", parallelism=3)
        with pytest.raises(FunctionsFullError, match="would have 5 instances"):
            await place.create("b", parallelism=2)
        results = await asyncio.gather(*(place.create(name) for name in "bc"), return_exceptions=True)
        refused = [each for each in results if isinstance(each, FunctionsFullError)]
        assert len(refused) == 1, "what is counted is stored before others count"
        with pytest.raises(FunctionsFullError):
            await place.catalogue.update(N, "a", lambda record: with_instances(record, 4))
        await place.catalogue.update(N, "a", lambda record: with_instances(record, 1))
        await place.catalogue.update(N, "a", lambda record: with_instances(record, 3))

    with_place(tmp_path, story)


def with_instances(record: FunctionRecord, count: int) -> FunctionRecord:
    return replace(record, config=replace(record.config, parallelism=count))
