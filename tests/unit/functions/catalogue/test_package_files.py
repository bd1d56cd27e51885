"""The folder of files: whole or not there, within its limits, not emptied by wrong records."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from magnetar.functions.catalogue.package_files import UNNAMED_S, PackageFiles, StoredFile
from magnetar.functions.refusals import (
    DamagedPackageError,
    PackageNotFoundError,
    PackagesFullError,
    PackageTooLargeError,
)
from support.functions import CODE, files_in, run, stored


def names(files: PackageFiles) -> list[str]:
    return sorted(entry.name for entry in files.folder.iterdir())


def test_a_file_is_there_once_it_has_arrived(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        assert await files.open(()) == 0
        arriving = files.begin("ex.py")
        for at in range(0, len(CODE), 5):
            await arriving.write(CODE[at : at + 5])
        file = await arriving.finish()
        assert names(files) == [file.file_id]
        assert (file.name, file.bytes, file.sha256) == ("ex.py", len(CODE), hashlib.sha256(CODE).hexdigest())
        assert (await files.checked(file)).read_bytes() == CODE
        assert files.bytes == len(CODE)
        await files.remove(file)
        assert (names(files), files.bytes) == ([], 0)

    run(story)


def test_a_durable_file_is_synced_before_and_after_it_gets_its_name(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        files.durable = True
        await files.open(())
        assert (await files.checked(await stored(files))).read_bytes() == CODE

    run(story)


def test_a_file_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path, file_bytes_max=10, all_bytes_max=15)
        await files.open(())
        await stored(files, data=b"x" * 8)
        for data, error in ((b"x" * 11, PackageTooLargeError), (b"x" * 8, PackagesFullError)):
            arriving = files.begin("ex.py")
            with pytest.raises(error):
                await arriving.write(data)
            await arriving.discard()
            assert (len(names(files)), files.bytes) == (1, 8)

    run(story)


def test_few_files_arrive_at_the_same_time(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.open(())
        arriving = [files.begin("ex.py") for _ in range(8)]
        with pytest.raises(PackagesFullError, match="8 files arrive"):
            files.begin("ex.py")
        await arriving[0].discard()
        files.begin("ex.py")

    run(story)


def test_a_full_disk_is_said_and_leaves_room_for_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.open(())

        class Full:
            f_bavail, f_frsize = 1, 4096

        monkeypatch.setattr(os, "statvfs", lambda folder: Full)
        arriving = files.begin("ex.py")
        await arriving.write(CODE)
        with pytest.raises(PackagesFullError, match=r"the disk of .* is full"):
            await arriving.finish()
        await arriving.discard()
        monkeypatch.undo()

        def refused() -> None:
            raise OSError(errno.EDQUOT, "quota")

        with pytest.raises(PackagesFullError, match="quota"):
            await files.in_folder(refused)
        assert names(files) == []

    run(story)


def test_a_damaged_file_is_never_given_out(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.open(())
        file = await stored(files)
        files.path(file).write_bytes(CODE[:-1] + b"!")
        with pytest.raises(DamagedPackageError, match="does not hold what was uploaded"):
            await files.checked(file)
        with pytest.raises(DamagedPackageError):
            await files.linked(file)
        files.path(file).unlink()
        with pytest.raises(PackageNotFoundError, match=r"not in .* any more"):
            await files.checked(file)

    run(story)


def test_a_link_is_a_file_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.open(())
        file = await stored(files)
        other = await files.linked(file)
        assert other.file_id != file.file_id
        await files.remove(file)
        assert (await files.checked(other)).read_bytes() == CODE
        assert files.bytes == len(CODE)

    run(story)


def test_a_start_puts_aside_what_no_record_names_and_back_what_one_names_again(tmp_path: Path) -> None:
    async def story() -> None:
        files = files_in(tmp_path)
        await files.open(())
        named, unnamed = await stored(files), await stored(files)
        (files.folder / f"incoming-{'0' * 32}").mkdir()
        (files.folder / "of-someone-else").mkdir()
        assert await files.open({named.file_id}, lambda: 1_000.0) == 1
        assert names(files) == sorted([named.file_id, f"unnamed-{unnamed.file_id}", "of-someone-else"])
        assert files.bytes == 2 * len(CODE), "what is put aside needs its space still"
        # The records of an older backup name it again.
        assert await files.open({named.file_id, unnamed.file_id}, lambda: 1_001.0) == 0
        assert (await files.checked(unnamed)).read_bytes() == CODE
        assert await files.open({named.file_id}, lambda: 2_000.0) == 1
        assert await files.open({named.file_id}, lambda: 2_000.0 + UNNAMED_S) == 1
        assert await files.open({named.file_id}, lambda: 2_001.0 + UNNAMED_S) == 0
        assert names(files) == sorted([named.file_id, "of-someone-else"])

    run(story)


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"file": "../x", "name": "a", "bytes": 1, "sha256": ""},
        {"file": "0" * 32, "name": "../a", "bytes": 1, "sha256": ""},
        {"file": "0" * 32, "name": ".a", "bytes": 1, "sha256": ""},
        {"file": "0" * 32, "name": "a", "bytes": -1, "sha256": ""},
        {"file": "0" * 32, "name": "a", "bytes": True, "sha256": ""},
        {"file": "0" * 32, "name": "a", "bytes": 1, "sha256": None},
    ],
)
def test_a_record_cannot_name_a_place_outside(document: object) -> None:
    with pytest.raises(ValueError, match=r"file|name|bytes|sha256"):
        StoredFile.of(document)


def test_a_record_names_its_file() -> None:
    file = StoredFile("a" * 32, "ex.py", 3, "ff")
    assert StoredFile.of(file.document()) == file
