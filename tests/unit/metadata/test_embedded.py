"""What the embedded store promises beyond the contract: it outlives its process."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import (
    CorruptDataError,
    DiskFullError,
    StartupError,
    StorageError,
    StorageFailedError,
)
from magnetar.metadata import sqlite_file
from magnetar.metadata.embedded import GATHER_FROM, EmbeddedMetadataStore
from magnetar.metadata.keys import GENERATION
from magnetar.metadata.reserve import Reserve
from magnetar.metadata.sqlite_rebuild import rebuild
from magnetar.metadata.store import (
    BadVersionError,
    Change,
    NotFoundError,
    Notification,
    Put,
    SessionEvent,
)
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import OneThread
from support.embedded_metadata import Row, dump, file_in, fill, session


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
        store._thread.close()

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
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(StartupError, match="format 3, this release knows up to 2"):
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


def test_a_bit_that_flips_under_an_open_store_is_reported_and_not_served(tmp_path: Path) -> None:
    async def before(store: EmbeddedMetadataStore) -> None:
        await store.put("/a", b"payload-to-corrupt")
        await store.put("/b", b"good")
        await store.put("/c", b"was a value")

    async def story(store: EmbeddedMetadataStore) -> None:
        # Behind the store's back, as a device would.
        other = sqlite3.connect(file_in(tmp_path), isolation_level=None)
        other.execute("UPDATE node SET data = x'00' WHERE name = 'a'")
        other.execute("UPDATE node SET data = NULL WHERE name = 'c'")
        other.close()
        with pytest.raises(CorruptDataError, match="the value of /a fails its checksum"):
            await store.get("/a")
        with pytest.raises(CorruptDataError, match="the value of /c fails its checksum"):
            await store.get("/c")
        outcomes = await asyncio.gather(
            store.put("/a", b"x", expected_version=0), store.put("/b", b"better"), return_exceptions=True
        )
        assert isinstance(outcomes[0], CorruptDataError)
        value = await store.get("/b")
        assert value is not None
        assert value.data == b"better"

    session(tmp_path, before)
    session(tmp_path, story)


def test_a_damaged_row_that_this_session_wrote_is_not_served_and_may_be_replaced(tmp_path: Path) -> None:
    """The store knows its version without the row: nothing of the damage gets into the new one."""

    async def story(store: EmbeddedMetadataStore) -> None:
        await store.put("/a", b"first")
        other = sqlite3.connect(file_in(tmp_path), isolation_level=None)
        other.execute("UPDATE node SET data = x'00', version = 7 WHERE name = 'a'")
        other.close()
        with pytest.raises(CorruptDataError, match="the value of /a fails its checksum"):
            await store.get("/a")
        assert (await store.put("/a", b"second", expected_version=0)).version == 1

    session(tmp_path, story)
    session(tmp_path, partial(replaced, b"second"))


async def replaced(data: bytes, store: EmbeddedMetadataStore) -> None:
    value = await store.get("/a")
    assert value is not None
    assert (value.data, value.stat.version) == (data, 1)


def test_damaged_rows_are_named(tmp_path: Path) -> None:
    session(tmp_path, fill)
    data = file_in(tmp_path).read_bytes()
    at = data.index(b"L0042") + 4
    file_in(tmp_path).write_bytes(data[:at] + b"3" + data[at + 1 :])
    with pytest.raises(CorruptDataError, match="the row of /ledgers/00/0000/L0043 fails its checksum"):
        session(tmp_path, dump_nothing)


def test_a_row_that_is_gone_is_missed(tmp_path: Path) -> None:
    session(tmp_path, fill)
    connection = sqlite3.connect(file_in(tmp_path), isolation_level=None)
    connection.execute("BEGIN")
    kept = connection.execute("SELECT * FROM total").fetchall()
    connection.execute("DELETE FROM node WHERE name = 'L0042'")
    connection.execute("UPDATE total SET count = ?, checksums = ?", kept[0])
    connection.execute("COMMIT")
    connection.close()
    with pytest.raises(CorruptDataError, match="rows are missing"):
        session(tmp_path, dump_nothing)


def test_a_file_is_made_anew_from_what_is_whole(tmp_path: Path) -> None:
    seen: list[list[Row]] = []

    async def write(store: EmbeddedMetadataStore) -> None:
        await fill(store)
        await store.put(GENERATION, b"7")

    async def look(store: EmbeddedMetadataStore) -> None:
        seen.append(await dump(store))
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000001"

    session(tmp_path, write)
    whole = file_in(tmp_path).read_bytes()
    session(tmp_path, look)
    # One bit of a key, one of a value; more than a bit of another.
    damaged = whole.replace(b"L0042value", b"L0043value").replace(b"value of 9 value", b"value of 8 value", 1)
    damaged = damaged.replace(b"L0050value of 50", b"L0050vzzzz of 50")
    assert damaged != whole
    file_in(tmp_path).write_bytes(damaged)
    fresh = tmp_path / "fresh" / "metadata" / "metadata.db"
    fresh.parent.mkdir(parents=True)
    done = rebuild(file_in(tmp_path), fresh)
    assert done.repaired == ["/ledgers/00/0000/L0009", "/ledgers/00/0000/L0042"]
    assert done.lost == ["b'/ledgers/00/0000' b'L0050'"]
    session(tmp_path / "fresh", look)
    before, after = seen
    assert after == sorted(
        (path, b"6" if path == GENERATION else data, version)
        for path, data, version in before
        if not path.endswith("L0050")
    )


async def dump_nothing(store: EmbeddedMetadataStore) -> None:
    raise AssertionError("it was opened")


def test_a_file_of_the_first_format_is_taken_over_once(tmp_path: Path) -> None:
    async def after(store: EmbeddedMetadataStore) -> None:
        assert (await store.put("/ids/n", b"", sequential=True)).path == "/ids/n0000000001"
        assert len(await dump(store)) == 61

    session(tmp_path, fill)
    to_first_format(file_in(tmp_path))
    session(tmp_path, after)
    data = file_in(tmp_path).read_bytes()
    to_first_format(file_in(tmp_path))
    first = file_in(tmp_path).read_bytes()
    assert first != data
    file_in(tmp_path).write_bytes(first.replace(b"L0042", b"L0043", 1))
    with pytest.raises(CorruptDataError):
        session(tmp_path, dump_nothing)


def to_first_format(file: Path) -> None:
    """As releases before the totals wrote it."""
    connection = sqlite3.connect(file, isolation_level=None)
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.executescript(
        """
        DROP TABLE total;
        CREATE TABLE before (parent TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO before SELECT parent, next FROM sequence;
        DROP TABLE sequence;
        ALTER TABLE before RENAME TO sequence;
        PRAGMA user_version = 1;
        """
    )
    connection.close()


class FailingWriter:
    """Stands in for the write connection: COMMIT fails as SQLite would."""

    def __init__(self, real: sqlite3.Connection, code: int) -> None:
        self._real = real
        self._code = code
        self.failures_left = 1
        self.ends = False
        """Whether it has ended the transaction already, as SQLite does after some errors."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.failures_left:
            self.failures_left -= 1
            if self.ends:
                self._real.execute("ROLLBACK")
            error = sqlite3.OperationalError("as told")
            error.sqlite_errorcode = self._code
            raise error
        return self._real.execute(statement, *arguments)  # type: ignore[arg-type]  # passed through


class Breaking(OneThread):
    """Ends each commit with an unexpected error."""

    def run(self, work: Any, *arguments: Any, **_: Any) -> asyncio.Future[Any]:
        if arguments == ("COMMIT",):
            return super().run([].pop)
        return super().run(work, *arguments)


def fail_commits(store: EmbeddedMetadataStore, code: int, times: int, *, ends: bool = False) -> None:
    failing = FailingWriter(store._writer, code)
    failing.ends = ends
    failing.failures_left = times
    store._writer = failing  # type: ignore[assignment]  # has the methods that are used


def test_who_writes_again_after_many_writes_shares_a_commit(tmp_path: Path) -> None:
    """Answers lead to the next requests some turns of the loop later, and these had a commit each."""
    commits: list[int] = []

    async def script(store: EmbeddedMetadataStore) -> None:
        take = store._take_group

        def counted() -> Any:
            group = take()
            commits.append(len(group))
            return group

        store._take_group = counted  # type: ignore[method-assign]  # counts what it takes

        async def caller(number: int) -> None:
            await store.put(f"/first/{number}", b"")
            for _ in range(number % 3):
                await yield_loop()
            await store.put(f"/second/{number}", b"")

        await asyncio.gather(*map(caller, range(GATHER_FROM)))
        assert commits == [GATHER_FROM, GATHER_FROM]

    session(tmp_path, script)


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


@pytest.mark.parametrize("ends", [False, True])
def test_a_write_that_was_undone_changes_no_version(tmp_path: Path, ends: bool) -> None:
    """The store remembers what it wrote last: not what never became a commit."""

    async def script(store: EmbeddedMetadataStore) -> None:
        await store.put("/a", b"first")
        fail_commits(store, sqlite3.SQLITE_FULL, times=1, ends=ends)
        with pytest.raises(DiskFullError):
            await store.put("/a", b"lost", expected_version=0)
        await store.put("/a", b"second", expected_version=0)
        with pytest.raises(BadVersionError):
            await store.transact([Put("/a", b"third", 1), Put("/b", b"", 7)])
        assert (await store.put("/a", b"fourth", expected_version=1)).version == 2

    session(tmp_path, script)


MIB = 1 << 20


def test_a_full_disk_has_a_reserve_for_what_makes_room(tmp_path: Path) -> None:
    """What is there may change and go until all of it is used; what is new gets half. It is made anew."""

    async def body() -> None:
        store = EmbeddedMetadataStore.open(file_in(tmp_path), clock=ManualClock(1), reserve_bytes=4 * MIB)
        reserve = file_in(tmp_path).with_name("metadata.db.reserve")
        try:
            await store.put("/old", b"")
            assert reserve.stat().st_size == 4 * MIB
            store._reserve.refill = lambda: False  # type: ignore[method-assign]  # the disk stays full
            fail_commits(store, sqlite3.SQLITE_FULL, times=3)
            with pytest.raises(DiskFullError):
                await store.put("/new", b"")
            assert reserve.stat().st_size == 2 * MIB
            await store.put("/new", b"")
            fail_commits(store, sqlite3.SQLITE_FULL, times=2)
            await store.delete("/old")
            assert reserve.stat().st_size == 0
            fail_commits(store, sqlite3.SQLITE_FULL, times=1)
            with pytest.raises(DiskFullError):
                await store.delete("/new")
            del store._reserve.refill
            await store.delete("/new")
            assert reserve.stat().st_size == 4 * MIB
        finally:
            await store.close()

    asyncio.run(body())


def test_the_reserve_is_not_made_of_the_last_room(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", 1 << 60)
    assert not reserve.refill()
    assert not reserve.give_up(for_new=False)
    assert not (tmp_path / "reserve").exists()


def test_after_a_failed_sync_nothing_is_written_any_more(tmp_path: Path) -> None:
    async def script(store: EmbeddedMetadataStore) -> None:
        fail_commits(store, sqlite3.SQLITE_IOERR_FSYNC, times=1)
        outcomes = await asyncio.gather(store.put("/a", b""), store.put("/b", b""), return_exceptions=True)
        assert all(isinstance(outcome, StorageFailedError) for outcome in outcomes)
        with pytest.raises(StorageFailedError):
            await store.put("/c", b"")

    session(tmp_path, script)


def test_a_failed_sync_ends_the_process_that_uses_the_store(tmp_path: Path) -> None:
    """It used to refuse every write from then on, in a process that went on and said it was ready."""

    async def body() -> None:
        fatal: list[StorageError] = []
        lost: list[SessionEvent] = []
        store = EmbeddedMetadataStore.open(file_in(tmp_path), clock=ManualClock(1), on_fatal=fatal.append)
        try:
            store.watch_session(lost.append)
            store.watch_session(lambda _: pytest.fail("was taken back"))()
            fail_commits(store, sqlite3.SQLITE_IOERR_FSYNC, times=1)
            for path in ("/a", "/b"):
                with pytest.raises(StorageFailedError) as refused:
                    await store.put(path, b"")
            await asyncio.sleep(0)
            assert fatal == [refused.value]
            assert lost == [SessionEvent.SESSION_LOST]
        finally:
            await store.close()

    asyncio.run(body())


def test_a_commit_that_ends_in_an_unknown_way_answers_all_who_wait(tmp_path: Path) -> None:
    async def script(store: EmbeddedMetadataStore) -> None:
        store._thread.close()
        store._thread = Breaking("breaking")
        first = asyncio.ensure_future(store.put("/a", b""))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(store.put("/b", b""))
        outcomes = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 10)
        assert all(isinstance(outcome, StorageFailedError) for outcome in outcomes), outcomes

    session(tmp_path, script)


def test_the_log_of_an_earlier_process_is_emptied_before_it_grows(tmp_path: Path) -> None:
    """What that process could not sync lies in it and looks whole; a commit behind it would not last."""

    async def crash() -> None:
        store = EmbeddedMetadataStore.open(file_in(tmp_path), clock=ManualClock(1))
        await store.put("/a", b"1")
        log = file_in(tmp_path).with_name("metadata.db-wal")
        for file in (file_in(tmp_path), log):
            copy = tmp_path / "copy" / "metadata" / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
        await store.close()

    async def after(store: EmbeddedMetadataStore) -> None:
        value = await store.get("/a")
        assert value is not None
        # What the file alone holds, without the log.
        alone = sqlite3.connect(f"file:{file_in(tmp_path / 'copy')}?immutable=1", uri=True)
        assert alone.execute("SELECT count(*) FROM node WHERE name = 'a'").fetchone() == (1,)
        alone.close()

    asyncio.run(crash())
    log = file_in(tmp_path / "copy").with_name("metadata.db-wal")
    assert log.stat().st_size > 0
    connection = sqlite_file.connect(file_in(tmp_path / "copy"), durable=True)
    sqlite_file.empty_log(connection, file_in(tmp_path / "copy"))
    assert log.stat().st_size == 0
    connection.close()
    session(tmp_path / "copy", after)


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
