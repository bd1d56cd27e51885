"""What the embedded store promises beyond the contract: it outlives its process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError, DiskFullError, StartupError, StorageFailedError
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.store import Change, NotFoundError, Notification


def file_in(folder: Path) -> Path:
    return folder / "metadata" / "metadata.db"


def session(
    folder: Path, script: Callable[[EmbeddedMetadataStore], Awaitable[None]], *, durable: bool = False
) -> None:
    async def body() -> None:
        store = EmbeddedMetadataStore.open(file_in(folder), clock=ManualClock(1), durable=durable)
        try:
            await script(store)
        finally:
            await store.close()

    asyncio.run(body())


def test_values_and_counters_outlive_the_session(tmp_path: Path) -> None:
    async def first(store: EmbeddedMetadataStore) -> None:
        await store.put("/a/b", b"1")
        await store.put("/a/b", b"2")
        await store.put("/e/x", b"", ephemeral=True)
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000000"

    async def second(store: EmbeddedMetadataStore) -> None:
        value = await store.get("/a/b")
        assert value is not None
        assert (value.data, value.stat.version, value.stat.created_by_self) == (b"2", 1, False)
        assert await store.children("/") == ["a", "ids"]
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000001"

    session(tmp_path, first, durable=True)
    session(tmp_path, second)


def test_a_dead_session_leaves_no_ephemeral_values(tmp_path: Path) -> None:
    async def crash() -> None:
        store = EmbeddedMetadataStore.open(file_in(tmp_path), clock=ManualClock(1), durable=False)
        await store.put("/e/mine", b"", ephemeral=True)
        await store.put("/e/parent", b"", ephemeral=True)
        await store.put("/e/parent/child", b"")
        store._close_files()
        store._thread.shutdown()

    async def after(store: EmbeddedMetadataStore) -> None:
        assert await store.children("/e") == ["parent"]
        assert not await store.exists("/e/parent")
        assert await store.exists("/e/parent/child")

    asyncio.run(crash())
    session(tmp_path, after)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    async def script(store: EmbeddedMetadataStore) -> None:
        with pytest.raises(StartupError, match=r"in use by process \d+"):
            EmbeddedMetadataStore.open(file_in(tmp_path), clock=ManualClock(1))
        await store.put("/still", b"works")

    session(tmp_path, script)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    async def nothing(store: EmbeddedMetadataStore) -> None:
        pass

    session(tmp_path, nothing)
    connection = sqlite3.connect(file_in(tmp_path))
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StartupError, match="format 2, this release knows up to 1"):
        session(tmp_path, nothing)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    async def nothing(store: EmbeddedMetadataStore) -> None:
        pass

    file_in(tmp_path).parent.mkdir()
    file_in(tmp_path).write_bytes(b"something else entirely" * 100)
    with pytest.raises(CorruptDataError):
        session(tmp_path, nothing)
    file_in(tmp_path).unlink()
    connection = sqlite3.connect(file_in(tmp_path))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StartupError, match="not a metadata file of ours"):
        session(tmp_path, nothing)


def test_a_flipped_bit_is_reported_and_not_served(tmp_path: Path) -> None:
    async def write(store: EmbeddedMetadataStore) -> None:
        await store.put("/a", b"payload-to-corrupt")
        await store.put("/b", b"good")

    async def read(store: EmbeddedMetadataStore) -> None:
        with pytest.raises(CorruptDataError, match="the value of /a fails its checksum"):
            await store.get("/a")
        outcomes = await asyncio.gather(
            store.put("/a", b"x", expected_version=0), store.put("/b", b"better"), return_exceptions=True
        )
        assert isinstance(outcomes[0], CorruptDataError)
        value = await store.get("/b")
        assert value is not None
        assert value.data == b"better"

    session(tmp_path, write)
    data = file_in(tmp_path).read_bytes()
    assert data.count(b"payload-to-corrupt") == 1
    file_in(tmp_path).write_bytes(data.replace(b"payload-to-corrupt", b"payload-tO-corrupt"))
    session(tmp_path, read)


class FailingWriter:
    """Stands in for the write connection: COMMIT fails as SQLite would."""

    def __init__(self, real: sqlite3.Connection, code: int) -> None:
        self._real = real
        self._code = code
        self.failures_left = 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.failures_left:
            self.failures_left -= 1
            error = sqlite3.OperationalError("as told")
            error.sqlite_errorcode = self._code
            raise error
        return self._real.execute(statement, *arguments)  # type: ignore[arg-type]  # passed through


def fail_commits(store: EmbeddedMetadataStore, code: int, times: int) -> None:
    failing = FailingWriter(store._writer, code)
    failing.failures_left = times
    store._writer = failing  # type: ignore[assignment]  # has the methods that are used


def test_a_full_disk_fails_only_what_does_not_fit(tmp_path: Path) -> None:
    async def script(store: EmbeddedMetadataStore) -> None:
        told: list[Notification] = []
        store.watch("/", told.append)
        # The common transaction fails, then the first write alone, then there is room again.
        fail_commits(store, sqlite3.SQLITE_FULL, times=2)
        outcomes = await asyncio.gather(
            store.put("/a", b""), store.put("/b", b""), store.delete("/c"), return_exceptions=True
        )
        assert isinstance(outcomes[0], DiskFullError)
        assert str(file_in(tmp_path).parent) in str(outcomes[0])
        assert not isinstance(outcomes[1], BaseException)
        assert isinstance(outcomes[2], NotFoundError)
        assert await store.children("/") == ["b"]
        assert [n.path for n in told if n.change is Change.CREATED] == ["/b"]
        await store.put("/a", b"")

    session(tmp_path, script)


def test_after_a_failed_sync_nothing_is_written_any_more(tmp_path: Path) -> None:
    async def script(store: EmbeddedMetadataStore) -> None:
        fail_commits(store, sqlite3.SQLITE_IOERR_FSYNC, times=1)
        outcomes = await asyncio.gather(store.put("/a", b""), store.put("/b", b""), return_exceptions=True)
        assert all(isinstance(outcome, StorageFailedError) for outcome in outcomes)
        with pytest.raises(StorageFailedError):
            await store.put("/c", b"")

    session(tmp_path, script)


def test_writes_called_before_close_are_kept(tmp_path: Path) -> None:
    async def write(store: EmbeddedMetadataStore) -> None:
        tasks = [asyncio.ensure_future(store.put(f"/n/{i}", b"")) for i in range(300)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)

    async def read(store: EmbeddedMetadataStore) -> None:
        assert len(await store.children("/n")) == 300

    session(tmp_path, write)
    session(tmp_path, read)
