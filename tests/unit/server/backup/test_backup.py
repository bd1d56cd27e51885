"""Points in time: what they link keeps its bytes, and what they name is in them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError
from magnetar.bookie.segment import PAGE_BYTES
from magnetar.bookie.segment_store import SegmentStore
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.server.backup import copying, restoring, staging
from magnetar.server.backup.manifest import BackupError, DamagedBackupError, FileRow, Manifest, decode, encode
from magnetar.server.backup.repository import Repository
from magnetar.server.backup.restoring import restore
from magnetar.server.backup.staging import Sources, Staging
from magnetar.server.storage.datafolder import DataFolder
from magnetar.server.storage.opened_stores import KeptHere
from support.storage import Sink, entries_of, run, settled, store_in, until

BODY = bytes(4000)


async def write(store: SegmentStore, ledger_id: int, count: int) -> None:
    sink = Sink()
    appender = store.appender(ledger_id, sink)
    for entry in range(count):
        appender.append([b"%d" % entry + BODY], None, entry, 1)
    await sink.reached(count - 1)
    store.release(appender)


@asynccontextmanager
async def used(root: Path) -> AsyncIterator[tuple[DataFolder, SegmentStore, Staging]]:
    """A data folder in use, whose small segments are full of ledger 1."""
    folder = DataFolder(root)
    metadata = EmbeddedMetadataStore.open(folder.metadata_file, clock=ManualClock(1), durable=False)
    await metadata.put("/topics/orders", b"named")
    await metadata.close()
    try:
        async with store_in(folder.bookie_dir, segment_bytes=256 << 10, spare_segments=4) as store:
            await write(store, 1, 200)
            await settled(store)
            points = Staging(folder, KeptHere(store), SystemClock())
            yield folder, store, points
            await points.close()
    finally:
        folder.release()


def copy_of(staged: Path, folder: Path) -> Path:
    """A data folder made of a point in time, by way of a repository."""
    repository = Repository.open(folder / "backups", create=True)
    manifest = copying.copy(staged, repository, with_history=True, progress=lambda _: None)
    restore(repository, manifest, folder / "copy", progress=lambda _: None)
    return folder / "copy" / "bookie"


def test_no_ledger_goes_between_links_and_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            deletions: list[asyncio.Task[None]] = []
            loop = asyncio.get_running_loop()
            copied = Sources.copy_metadata

            def copy_while_it_is_deleted(self: Sources, staged: Path) -> None:
                # The metadata of this moment names ledger 1, and then it is deleted.
                copied(self, staged)
                asyncio.run_coroutine_threadsafe(begin(), loop).result(10)

            async def begin() -> None:
                deletions.append(asyncio.create_task(store.delete(1)))
                for _ in range(50):
                    await asyncio.sleep(0)

            monkeypatch.setattr(Sources, "copy_metadata", copy_while_it_is_deleted)
            point = await points.begin()
            await asyncio.gather(*deletions)
            assert store.ledger_ids() == set()
            async with store_in(copy_of(point.folder, tmp_path)) as copy:
                assert copy.ledger_ids() == {1}
                assert len(await entries_of(copy, 1)) == 200

    run(scenario())


def test_a_linked_segment_that_dies_is_not_written_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            point = await points.begin()
            await store.delete(1)
            await settled(store)
            # What died is written over, where it may be.
            await write(store, 2, 400)
            await settled(store)
            async with store_in(copy_of(point.folder, tmp_path)) as copy:
                assert copy.ledger_ids() == {1}
                assert len(await entries_of(copy, 1)) == 200

    run(scenario())


def test_what_comes_after_the_point_is_not_in_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            point = await points.begin()
            await write(store, 2, 10)
            async with store_in(copy_of(point.folder, tmp_path)) as copy:
                assert copy.ledger_ids() == {1}

    run(scenario())


def test_what_the_log_says_of_itself_later_is_not_missed_in_the_copy(tmp_path: Path) -> None:
    """An idle log notes in its segment how far it goes: the copy of an earlier end called that damage."""

    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            point = await points.begin()
            await write(store, 2, 3)
            await until(lambda: store.mark.is_marked)
            async with store_in(copy_of(point.folder, tmp_path)) as copy:
                assert copy.ledger_ids() == {1}
                assert [segment.damages for segment in copy.segments if segment.damages] == []
                assert len(await entries_of(copy, 1)) == 200

    run(scenario())


def test_a_copy_that_is_cut_short_is_found_damaged(tmp_path: Path) -> None:
    """It says itself how far it goes, whatever its source said of itself."""

    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            point = await points.begin()
            await write(store, 2, 3)
            await until(lambda: store.mark.is_marked)
            restored = copy_of(point.folder, tmp_path)
            last = max((restored / "segments").glob("*.seg"))
            end = last.stat().st_size
            os.truncate(last, end - 2 * PAGE_BYTES)
            os.truncate(last, end)
            async with store_in(restored) as copy:
                assert any(segment.damages for segment in copy.segments)

    run(scenario())


def test_messages_and_metadata_are_of_one_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (folder, _, points):
            belongs = folder.bookie_dir / "BELONGS"
            belongs.write_bytes(b"generation 1")
            copied = Sources._copy_tree
            generations = iter([b"generation 3"])

            def copy_while_generations_go_on(self: Sources, staged: Path) -> None:
                belongs.write_bytes(next(generations, belongs.read_bytes()))
                copied(self, staged)

            monkeypatch.setattr(Sources, "_copy_tree", copy_while_generations_go_on)
            point = await points.begin()
            assert (point.folder / "bookie" / "BELONGS").read_bytes() == b"generation 3"

    run(scenario())


def test_the_segment_that_was_written_to_has_room_behind_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended with the log, as a file that was cut off: each copy said that bytes were damaged."""

    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, store, points):
            await write(store, 2, 1)
            point = await points.begin()
            async with store_in(copy_of(point.folder, tmp_path)) as copy:
                assert "corrupt data" not in caplog.text
                assert copy.ledger_ids() == {1, 2}

    run(scenario())


def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    """It got files of a data folder, and was closed for all others."""
    tmp_path.chmod(0o755)
    with pytest.raises(BackupError, match="is not a data folder"), staging.of_unused(tmp_path, SystemClock()):
        pass
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def damage(file: Path, what: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[data.rindex(what)] ^= 1
    file.write_bytes(data)


def test_damaged_metadata_is_not_backed_up(tmp_path: Path) -> None:
    """Such a backup was listed and verified, and no broker could start with it."""

    async def scenario() -> None:
        async with used(tmp_path / "data") as (folder, _, points):
            damage(folder.metadata_file, b"named")
            with pytest.raises(BackupError, match="/topics/orders fails its checksum"):
                await points.begin()
            assert os.listdir(folder.staged_dir) == []

    run(scenario())


def test_a_backup_of_a_killed_folder_drops_no_commits(tmp_path: Path) -> None:
    """SQLite left out what followed the damage, in the copy and in the folder."""
    folder = DataFolder(tmp_path)
    folder.release()

    async def scenario() -> None:
        metadata = EmbeddedMetadataStore.open(folder.metadata_file, clock=ManualClock(1), durable=False)
        for number in range(8):
            await metadata.put(f"/topics/{number}", b"named %d" % number)
        left = {file: file.read_bytes() for file in folder.metadata_file.parent.iterdir()}
        await metadata.close()
        for file, data in left.items():
            file.write_bytes(data)

    run(scenario())
    log = folder.metadata_file.with_name("metadata.db-wal")
    cut = bytearray(log.read_bytes())
    at = cut.index(b"named 3")
    cut[at : at + 4] = bytes(4)
    log.write_bytes(cut)
    with pytest.raises(CorruptDataError, match="commits"), staging.of_unused(tmp_path, SystemClock()):
        pass
    assert log.read_bytes() == cut


def test_one_point_at_a_time_and_it_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (folder, _, points):
            point = await points.begin()
            with pytest.raises(BackupError, match="under way"):
                await points.begin()
            assert await points.renew(point.staged_id)
            assert not await points.renew("another")
            assert await points.end(point.staged_id)
            assert not await points.end(point.staged_id)
            assert list(folder.staged_dir.iterdir()) == []
            await points.begin()

    run(scenario())


def test_a_point_that_nobody_copies_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "KEPT_S", 0.0)

    async def scenario() -> None:
        async with used(tmp_path / "data") as (_, _store, points):
            point = await points.begin()
            assert points._watch is not None
            await points._watch
            assert not point.folder.exists()
            assert not await points.renew(point.staged_id)

    run(scenario())


def test_a_point_that_failed_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with used(tmp_path / "data") as (folder, _, points):
            folder.metadata_file.unlink()
            with pytest.raises(BackupError, match="no point in time"):
                await points.begin()
            assert list(folder.staged_dir.iterdir()) == []

    run(scenario())


MANIFEST = Manifest("20260101T000000Z", 1, "0", (FileRow("a", "0" * 64, 3),), 3)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode(encode(MANIFEST), "m") == MANIFEST


def test_every_flipped_bit_of_a_manifest_is_found() -> None:
    data = encode(MANIFEST)
    for at in range((len(data) - 1) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedBackupError):
            decode(bytes(damaged), "m")


def test_a_backup_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    repository = Repository.open(tmp_path / "backups", create=True)
    source = tmp_path / "file"
    source.write_bytes(b"abc")
    digest, _ = repository.add(source, 3, lambda _: None)
    wrong = replace(MANIFEST, files=(FileRow("../elsewhere", digest, 3),))
    with pytest.raises(BackupError, match="elsewhere"):
        restore(repository, wrong, tmp_path / "data", progress=lambda _: None)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_with_other_files_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(BackupError, match="other files"):
        Repository.open(tmp_path, create=True)
    with pytest.raises(BackupError, match="not a folder with backups"):
        Repository.open(tmp_path)


def test_what_a_restore_that_was_cut_short_left_is_removed(tmp_path: Path) -> None:
    repository = Repository.open(tmp_path / "backups", create=True)
    source = tmp_path / "file"
    source.write_bytes(b"abc")
    digest, _ = repository.add(source, 3, lambda _: None)
    manifest = replace(MANIFEST, files=(FileRow("bookie/x", digest, 3),))
    part = tmp_path / "data.restoring"
    part.mkdir()
    (part / "half").touch()
    with pytest.raises(BackupError, match="it is not ours"):
        restore(repository, manifest, tmp_path / "data", progress=lambda _: None)
    (part / "RESTORING").touch()
    (part / "bookie").mkdir()
    restore(repository, manifest, tmp_path / "data", progress=lambda _: None)
    assert (tmp_path / "data" / "bookie" / "x").read_bytes() == b"abc"
    assert not (tmp_path / "data" / "half").exists()
    assert not (tmp_path / "data" / "RESTORING").exists()


def test_what_a_restore_left_that_was_cut_short_at_its_begin_is_no_strangers(tmp_path: Path) -> None:
    """Before it had its mark, or while it removed what another one had left."""
    part = tmp_path / "data.restoring"
    part.mkdir()
    restoring._clear(part)
    assert not part.exists()
    part.write_text("of somebody")
    with pytest.raises(BackupError, match="it is not ours"):
        restoring._clear(part)


def test_the_mark_of_a_restore_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "data.restoring"
    (part / "bookie").mkdir(parents=True)
    (part / "RESTORING").touch()
    (part / "FORMAT").touch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            restoring._clear(part)
    assert (part / "RESTORING").exists()
    restoring._clear(part)
    assert not part.exists()


def test_a_restore_that_is_cut_short_at_its_last_step_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had left was called a stranger's, and stayed in the way."""
    repository = Repository.open(tmp_path / "backups", create=True)
    source = tmp_path / "file"
    source.write_bytes(b"abc")
    digest, _ = repository.add(source, 3, lambda _: None)
    manifest = replace(MANIFEST, files=(FileRow("bookie/x", digest, 3),))

    replaced = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if path.name == "data.restoring":
            raise KeyboardInterrupt
        return replaced(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            restore(repository, manifest, tmp_path / "data", progress=lambda _: None)
    restore(repository, manifest, tmp_path / "data", progress=lambda _: None)
    assert (tmp_path / "data" / "bookie" / "x").read_bytes() == b"abc"


def test_a_folder_that_cannot_be_replaced_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.open(tmp_path / "backups", create=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(BackupError, match="the current folder"):
        restore(repository, MANIFEST, Path("."), progress=lambda _: None)
    with pytest.raises(BackupError, match="a mount point"):
        restore(repository, MANIFEST, Path("/proc"), progress=lambda _: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", "here"]


def test_a_point_in_time_that_is_being_taken_while_the_broker_stops_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there after the end, with a watch that was not ended."""

    async def scenario() -> None:
        async with used(tmp_path / "data") as (folder, _, points):
            taken, may = asyncio.Event(), asyncio.Event()

            async def slowly(staged: Path) -> None:
                os.makedirs(staged)
                taken.set()
                await may.wait()

            monkeypatch.setattr(points, "_take", slowly)
            monkeypatch.setattr(Sources, "check_metadata", lambda self, staged: None)
            beginning = asyncio.ensure_future(points.begin())
            await taken.wait()
            await points.close()
            may.set()
            with pytest.raises(BackupError, match="the broker stops"):
                await beginning
            assert list(folder.staged_dir.iterdir()) == []

    asyncio.run(scenario())
