"""The log that a killed process leaves: a flipped bit is put right or said, lost commits too; cuts pass."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError
from magnetar.metadata import embedded
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.sqlite_log import check_log, examine

COMMITS = 8
FRAME_BYTES = 4096 + 24
HEADER_BYTES = 32


def session(file: Path, script: Callable[[EmbeddedMetadataStore], Awaitable[None]]) -> None:
    async def body() -> None:
        store = EmbeddedMetadataStore.open(file, clock=ManualClock(1), durable=False)
        try:
            await script(store)
        finally:
            await store.close()

    asyncio.run(body())


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a process leaves it that is killed: the file, and the log with the last commits."""
    folder = tmp_path_factory.mktemp("killed")
    left = folder / "left"
    left.mkdir()

    async def script(store: EmbeddedMetadataStore) -> None:
        for number in range(COMMITS):
            await store.put(f"/topics/{number}", random.Random(number).randbytes(900))
        for name in ("metadata.db", "metadata.db-wal", "metadata.db-shm"):
            shutil.copy(folder / name, left / name)

    session(folder / "metadata.db", script)
    return left


def opened(killed: Path, folder: Path, log: bytes) -> int:
    """How many of the values are there with this log; each is checked."""
    folder.mkdir()
    shutil.copy(killed / "metadata.db", folder)
    (folder / "metadata.db-wal").write_bytes(log)
    found = 0

    async def script(store: EmbeddedMetadataStore) -> None:
        nonlocal found
        for number in range(COMMITS):
            if (value := await store.get(f"/topics/{number}")) is not None:
                assert value.data == random.Random(number).randbytes(900)
                assert found == number, "commits are lost from the end only"
                found += 1

    session(folder / "metadata.db", script)
    return found


def log_of(killed: Path) -> bytes:
    return (killed / "metadata.db-wal").read_bytes()


def test_a_whole_log_is_whole(killed: Path, tmp_path: Path) -> None:
    log = log_of(killed)
    assert len(log) > HEADER_BYTES + 2 * FRAME_BYTES
    assert examine(log, tmp_path).damage is None
    assert opened(killed, tmp_path / "whole", log) == COMMITS


def test_one_flipped_bit_anywhere_is_put_right_or_said(killed: Path, tmp_path: Path) -> None:
    """It took back every commit from there on, and nothing said so."""
    log = log_of(killed)
    chance = random.Random(5)
    last = len(log) - FRAME_BYTES
    places = [
        *range(HEADER_BYTES),
        *range(HEADER_BYTES, HEADER_BYTES + 24),
        *range(last, last + 24),
        *range(len(log) - 12, len(log)),
        *(chance.randrange(len(log)) for _ in range(60)),
    ]
    mended = 0
    for place in places:
        bit = chance.randrange(8)
        damaged = bytearray(log)
        damaged[place] ^= 1 << bit
        try:
            found = examine(bytes(damaged), tmp_path).damage
        except CorruptDataError:
            # One of several bits: the highest of many words are not told apart.
            continue
        mended += found == (place, bit)
        # Which bit of the header's count of checkpoints it was does no harm.
        assert found == (place, bit) or 12 <= place < 16 or place < 4, (place, bit, found)
    assert mended > len(places) // 2
    # Also where SQLite reads it, in the last commit; the log is said to be whole after that.
    damaged = bytearray(log)
    damaged[last + 2_000] ^= 4
    assert opened(killed, tmp_path / "mended", bytes(damaged)) == COMMITS
    file = tmp_path / "again.db"
    file.with_name("again.db-wal").write_bytes(damaged)
    assert check_log(file) == (last + 2_000, 2)
    assert check_log(file) is None
    assert file.with_name("again.db-wal").read_bytes() == log


def test_more_than_a_bit_in_front_of_later_commits_is_refused(killed: Path, tmp_path: Path) -> None:
    log = log_of(killed)
    frames = (len(log) - HEADER_BYTES) // FRAME_BYTES
    at = HEADER_BYTES + frames // 2 * FRAME_BYTES + 24 + 2_048
    damaged = log[:at] + bytes(512) + log[at + 512 :]
    if damaged == log:
        damaged = log[:at] + b"damage" * 80 + log[at + 480 :]
    with pytest.raises(CorruptDataError, match=r"metadata.db-wal .*synced are damaged .*rebuild-metadata"):
        opened(killed, tmp_path / "damaged", damaged)
    assert (tmp_path / "damaged" / "metadata.db-wal").read_bytes() == damaged


def test_a_log_that_a_crash_cut_is_no_damage(killed: Path, tmp_path: Path) -> None:
    """The last commit may be there in part, torn at sectors, whatever was there before."""
    log = log_of(killed)
    chance = random.Random(7)
    frames = (len(log) - HEADER_BYTES) // FRAME_BYTES
    for cut in range(frames):
        at = HEADER_BYTES + cut * FRAME_BYTES
        for torn in (log[:at], log[: at + 512 * chance.randrange(8)], log[:at] + bytes(len(log) - at)):
            assert examine(torn, tmp_path).damage is None
    at = HEADER_BYTES + (frames - 1) * FRAME_BYTES
    assert opened(killed, tmp_path / "cut", log[:at] + bytes(1_024) + log[at + 1_024 :]) < COMMITS


def left_with(killed: Path, folder: Path, log: bytes | None, index: bytes | None) -> Path:
    """The file in a folder as it was left, with this log and this index of it."""
    folder.mkdir()
    file = folder / "metadata.db"
    shutil.copy(killed / "metadata.db", file)
    for end, content in (("-wal", log), ("-shm", index)):
        if content is not None:
            file.with_name(file.name + end).write_bytes(content)
    return file


def end_of_last_but_one(log: bytes) -> int:
    """Where the last commit begins."""
    ends = [
        at + FRAME_BYTES
        for at in range(HEADER_BYTES, len(log), FRAME_BYTES)
        if log[at + 4 : at + 8] != bytes(4)
    ]
    return ends[-2]


def test_the_last_commit_cannot_go_after_a_kill(killed: Path, tmp_path: Path) -> None:
    """More than a bit of it passed for a write that was cut short; SQLite's own note of it says otherwise."""
    log, index = log_of(killed), (killed / "metadata.db-shm").read_bytes()
    at = end_of_last_but_one(log)
    hurt = log[:at] + bytes(len(log) - at)
    lost = r"metadata.db-wal at byte \d+: commits that were synced are damaged .*rebuild-metadata"
    for number, damaged in enumerate((hurt, log[:at], log[:HEADER_BYTES], b"", None)):
        file = left_with(killed, tmp_path / f"damaged{number}", damaged, index)
        with pytest.raises(CorruptDataError, match=lost):
            EmbeddedMetadataStore.open(file, clock=ManualClock(1))
        assert file.with_name("metadata.db-shm").read_bytes() == index, "nothing was changed"
    # As it was; what was not synced; and where nothing notes how far it went.
    assert check_log(left_with(killed, tmp_path / "whole", log, index)) is None
    assert check_log(left_with(killed, tmp_path / "volatile", hurt, index), durable=False) is None
    assert check_log(left_with(killed, tmp_path / "moved", hurt, None)) is None


def test_an_index_of_an_earlier_moment_says_nothing(killed: Path, tmp_path: Path) -> None:
    """As a power cut leaves it: it is not synced. Nor does one that is damaged."""
    log, index = log_of(killed), (killed / "metadata.db-shm").read_bytes()
    chance = random.Random(9)
    at = end_of_last_but_one(log)
    for number in range(40):
        damaged = bytearray(index)
        for copy in (0, 48):
            damaged[copy + chance.randrange(48)] ^= 1 << chance.randrange(8)
        file = left_with(killed, tmp_path / f"index{number}", log[:at], bytes(damaged))
        assert check_log(file) is None
    for number, short in enumerate((b"", index[:90], bytes(len(index)))):
        assert check_log(left_with(killed, tmp_path / f"short{number}", log[:at], short)) is None


def test_what_was_copied_to_the_file_is_not_missed(tmp_path: Path) -> None:
    """A log whose commits are all in the file may be damaged, or of another salt."""
    folder = tmp_path / "store"

    async def script(store: EmbeddedMetadataStore) -> None:
        for number in range(COMMITS):
            await store.put(f"/topics/{number}", bytes(900))
        store._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        left = tmp_path / "left"
        left.mkdir()
        for path in folder.glob("metadata.db*"):
            shutil.copy(path, left / path.name)
        log = left / "metadata.db-wal"
        log.write_bytes(log.read_bytes()[: HEADER_BYTES + FRAME_BYTES // 2])
        assert check_log(left / "metadata.db") is None
        # The log begins anew over the old one.
        await store.put("/topics/next", b"")
        for path in folder.glob("metadata.db*"):
            shutil.copy(path, left / path.name)
        assert check_log(left / "metadata.db") is None
        log.write_bytes(log.read_bytes()[:HEADER_BYTES])
        with pytest.raises(CorruptDataError):
            check_log(left / "metadata.db")

    session(folder / "metadata.db", script)


def test_a_refused_start_leaves_file_and_log(killed: Path, tmp_path: Path) -> None:
    """SQLite copied the log into the file at the end, also the log of another file into a restored one."""
    for name in ("metadata.db", "metadata.db-wal"):
        shutil.copy(killed / name, tmp_path)
    log = tmp_path / "metadata.db-wal"
    before = (tmp_path / "metadata.db").read_bytes(), log.read_bytes()

    def refuse(connection: sqlite3.Connection, file: Path) -> bool:
        assert connection.execute("SELECT count(*) FROM node").fetchone()[0] > COMMITS
        raise CorruptDataError(str(file), 0, "a row fails its checksum")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "check_format", refuse)
        with pytest.raises(CorruptDataError, match="fails its checksum"):
            EmbeddedMetadataStore.open(tmp_path / "metadata.db", clock=ManualClock(1), durable=False)
    assert ((tmp_path / "metadata.db").read_bytes(), log.read_bytes()) == before
