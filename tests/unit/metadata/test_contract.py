"""The contract of a metadata store, on each backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.paths import InvalidPathError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    Delete,
    HasChildrenError,
    MetadataStore,
    NotFoundError,
    Notification,
    Put,
    StoreClosedError,
)

Script = Callable[[MetadataStore], Awaitable[None]]


class Backend:
    """Runs a script against one kind of store."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.clock = ManualClock(1000)

    def make(self) -> MetadataStore:
        if self.kind == "memory":
            return MemoryMetadataStore(self.clock)
        return EmbeddedMetadataStore.open(self.folder / "metadata.db", clock=self.clock, durable=False)

    def run(self, script: Script) -> None:
        async def body() -> None:
            store = self.make()
            try:
                await script(store)
            finally:
                await store.close()

        asyncio.run(body())


@pytest.fixture(params=["memory", "embedded"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return Backend(request.param, tmp_path)


def created(path: str) -> Notification:
    return Notification(Change.CREATED, path)


def modified(path: str) -> Notification:
    return Notification(Change.MODIFIED, path)


def deleted(path: str) -> Notification:
    return Notification(Change.DELETED, path)


def children_changed(path: str) -> Notification:
    return Notification(Change.CHILDREN_CHANGED, path)


def test_a_value_comes_back_with_its_stat(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        assert await store.get("/a/b") is None
        stat = await store.put("/a/b", b"one")
        assert (stat.path, stat.version, stat.created_ms, stat.modified_ms) == ("/a/b", 0, 1000, 1000)
        assert (stat.ephemeral, stat.created_by_self) == (False, True)
        backend.clock.advance(5)
        stat = await store.put("/a/b", b"two")
        assert (stat.version, stat.created_ms, stat.modified_ms) == (1, 1000, 1005)
        value = await store.get("/a/b")
        assert value is not None
        assert value.data == b"two"
        assert value.stat == stat

    backend.run(script)


def test_an_empty_value_is_a_value(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        await store.put("/a", b"")
        value = await store.get("/a")
        assert value is not None
        assert value.data == b""
        assert await store.exists("/a")

    backend.run(script)


def test_versions_guard_writes(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        await store.put("/a", b"0", expected_version=MUST_NOT_EXIST)
        with pytest.raises(BadVersionError) as caught:
            await store.put("/a", b"x", expected_version=MUST_NOT_EXIST)
        assert (caught.value.expected, caught.value.actual) == (MUST_NOT_EXIST, 0)
        assert (await store.put("/a", b"1", expected_version=0)).version == 1
        with pytest.raises(BadVersionError):
            await store.put("/a", b"x", expected_version=0)
        with pytest.raises(BadVersionError) as caught:
            await store.put("/none", b"x", expected_version=0)
        assert caught.value.actual is None
        with pytest.raises(BadVersionError):
            await store.delete("/a", expected_version=0)
        value = await store.get("/a")
        assert value is not None
        assert value.data == b"1"
        await store.delete("/a", expected_version=1)
        assert await store.get("/a") is None
        assert (await store.put("/a", b"new", expected_version=MUST_NOT_EXIST)).version == 0

    backend.run(script)


def test_delete_refuses(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        await store.put("/a/b/c", b"")
        await store.put("/a", b"")
        with pytest.raises(NotFoundError):
            await store.delete("/none")
        with pytest.raises(NotFoundError):
            await store.delete("/a/b")
        with pytest.raises(HasChildrenError):
            await store.delete("/a")
        await store.delete("/a/b/c")
        await store.delete("/a")
        assert await store.children("/") == []

    backend.run(script)


def test_children_are_sorted_and_may_be_implied(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        for path in ("/t/z", "/t/a/deep/er", "/t/a-b", "/t/é", "/t/a/x", "/tt/other"):
            await store.put(path, b"")
        assert await store.children("/t") == ["a", "a-b", "z", "é"]
        assert await store.children("/t/a") == ["deep", "x"]
        assert await store.children("/") == ["t", "tt"]
        assert await store.children("/nowhere") == []
        assert not await store.exists("/t/a")
        assert await store.get("/t/a") is None
        await store.delete("/t/a/x")
        assert await store.children("/t") == ["a", "a-b", "z", "é"]
        await store.delete("/t/a/deep/er")
        assert await store.children("/t") == ["a-b", "z", "é"]

    backend.run(script)


def test_a_value_outlives_its_children(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        await store.put("/a/b", b"kept")
        await store.put("/a/b/c", b"")
        await store.delete("/a/b/c")
        assert await store.exists("/a/b")

    backend.run(script)


def test_delete_recursive(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        for path in ("/t/a", "/t/a/1", "/t/a/1/2", "/t/a0", "/t/a-", "/t/a.b/c"):
            await store.put(path, b"")
        await store.delete_recursive("/t/a")
        assert await store.children("/t") == ["a-", "a.b", "a0"]
        await store.delete_recursive("/t/a")
        await store.delete_recursive("/t")
        assert await store.children("/") == []
        await store.put("/x/y", b"")
        await store.delete_recursive("/")
        assert await store.children("/") == []

    backend.run(script)


def test_sequential_counters_never_go_back(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        first = await store.put("/ids/ID-", b"", sequential=True)
        assert first.path == "/ids/ID-0000000000"
        second = await store.put("/ids/other-", b"", sequential=True, ephemeral=True)
        assert second.path == "/ids/other-0000000001"
        assert second.ephemeral
        await store.delete_recursive("/ids")
        third = await store.put("/ids/ID-", b"", sequential=True)
        assert third.path == "/ids/ID-0000000002"
        assert (await store.put("/more/ID-", b"", sequential=True)).path == "/more/ID-0000000000"
        await store.put("/ids/ID-0000000003", b"")
        assert (await store.put("/ids/ID-", b"", sequential=True)).path == "/ids/ID-0000000004"

    backend.run(script)


def test_transactions_are_all_or_nothing(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        stats = await store.transact([Put("/a", b"1"), Put("/b/c", b"2", MUST_NOT_EXIST)])
        assert [stat and stat.version for stat in stats] == [0, 0]
        told: list[Notification] = []
        store.watch("/", told.append)
        with pytest.raises(BadVersionError) as caught:
            await store.transact([Put("/a", b"x"), Delete("/b/c"), Put("/d/e/f", b"x"), Put("/g", b"", 4)])
        assert caught.value.path == "/g"
        assert told == []
        assert await store.children("/") == ["a", "b"]
        value = await store.get("/a")
        assert value is not None
        assert (value.data, value.stat.version) == (b"1", 0)
        assert await store.exists("/b/c")
        with pytest.raises(NotFoundError):
            await store.transact([Delete("/b/c"), Delete("/b/c")])
        stats = await store.transact(
            [Delete("/b/c", 0), Put("/b/c", b"3", MUST_NOT_EXIST), Put("/a", b"2", 0)]
        )
        assert [stat and stat.version for stat in stats] == [None, 0, 1]
        assert await store.transact([]) == []

    backend.run(script)


def test_watchers_hear_before_the_writer_continues(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        told: list[Notification] = []
        below: list[Notification] = []
        store.watch("/", told.append)
        cancel = store.watch("/a", below.append)
        await store.put("/a/b", b"")
        assert told == [created("/a/b"), children_changed("/a"), children_changed("/")]
        assert below == told[:2]
        told.clear()
        await store.put("/a/b", b"")
        assert told == [modified("/a/b")]
        told.clear()
        await store.put("/a/c", b"")
        assert told == [created("/a/c"), children_changed("/a")]
        told.clear()
        cancel()
        cancel()
        below.clear()
        await store.put("/ab", b"")
        await store.delete("/a/b")
        assert told == [created("/ab"), children_changed("/"), deleted("/a/b"), children_changed("/a")]
        told.clear()
        await store.delete_recursive("/a")
        assert told == [deleted("/a/c"), children_changed("/a"), children_changed("/")]
        assert below == []

    backend.run(script)


def test_a_failed_write_is_not_announced(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        told: list[Notification] = []
        store.watch("/", told.append)
        with pytest.raises(NotFoundError):
            await store.delete("/a")
        assert told == []

    backend.run(script)


def test_a_failing_watcher_harms_neither_writer_nor_other_watchers(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        reported: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        told: list[Notification] = []

        def fail(notification: Notification) -> None:
            raise RuntimeError("watcher's own fault")

        store.watch("/a", fail)
        store.watch("/a", told.append)
        await store.put("/a", b"")
        assert told == [created("/a")]
        assert len(reported) == 1

    backend.run(script)


def test_concurrent_writes_keep_the_order_of_the_calls(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        told: list[Notification] = []
        store.watch("/", told.append)
        outcomes = await asyncio.gather(
            store.put("/a", b"1", expected_version=MUST_NOT_EXIST),
            store.put("/a", b"2", expected_version=MUST_NOT_EXIST),
            store.put("/a", b"3", expected_version=0),
            store.delete("/none"),
            store.put("/b", b"4"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], BadVersionError)
        assert isinstance(outcomes[3], NotFoundError)
        value = await store.get("/a")
        assert value is not None
        assert (value.data, value.stat.version) == (b"3", 1)
        paths = [n for n in told if n.change is not Change.CHILDREN_CHANGED]
        assert paths == [created("/a"), modified("/a"), created("/b")]

    backend.run(script)


def test_many_writes_at_once(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        stats = await asyncio.gather(*(store.put("/q/n-", b"", sequential=True) for _ in range(1000)))
        assert [stat.path for stat in stats] == [f"/q/n-{i:010d}" for i in range(1000)]
        assert len(await store.children("/q")) == 1000

    backend.run(script)


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//a", "/a//b", "/"])
def test_bad_paths_are_refused(backend: Backend, path: str) -> None:
    async def script(store: MetadataStore) -> None:
        with pytest.raises(InvalidPathError):
            await store.put(path, b"")
        with pytest.raises(InvalidPathError):
            await store.get(path)
        with pytest.raises(InvalidPathError):
            await store.delete(path)

    backend.run(script)


def test_closing_ends_the_session(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        told: list[Notification] = []
        store.watch("/e", told.append)
        stat = await store.put("/e/1", b"", ephemeral=True)
        assert stat.ephemeral
        assert stat.created_by_self
        await store.put("/e/1", b"again")
        told.clear()
        await store.close()
        assert told == [deleted("/e/1"), children_changed("/e")]
        await store.close()
        with pytest.raises(StoreClosedError):
            await store.get("/e/1")
        with pytest.raises(StoreClosedError):
            await store.put("/e/1", b"")
        with pytest.raises(StoreClosedError):
            store.watch("/", told.append)

    backend.run(script)


def test_an_ephemeral_value_with_children_leaves_them(backend: Backend) -> None:
    async def script(store: MetadataStore) -> None:
        await store.put("/e", b"", ephemeral=True)
        await store.put("/e/child", b"kept")
        await store.delete("/e/child")
        await store.delete("/e")
        assert await store.children("/") == []

    backend.run(script)
