"""A folder with backups in which something is damaged, or was cut short."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from magnetar.server.backup import copying
from magnetar.server.backup.manifest import DamagedBackupError, Manifest
from magnetar.server.backup.repository import Repository
from magnetar.server.backup.staging import STAGED_FILE

SEGMENT = "bookie/segments/0000000000000001.seg"


def ignore(_: int) -> None:
    """The progress is not shown."""


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A point in time with one sealed segment."""
    folder = tmp_path / "staged"
    (folder / SEGMENT).parent.mkdir(parents=True)
    (folder / SEGMENT).write_bytes(b"messages")
    (folder / STAGED_FILE).write_text(json.dumps({"created_ms": 0, "growing": {}}))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(tmp_path / "backups", create=True)


def backup(staged: Path, repository: Repository) -> Manifest:
    with repository.writing():
        return copying.copy(staged, repository, with_history=True, progress=ignore)


def damage_manifest(repository: Repository, manifest: Manifest) -> None:
    path = repository.root / "backups" / f"{manifest.backup_id}.json"
    path.write_bytes(b" " + path.read_bytes())


def test_a_file_that_was_cut_off_is_brought_again(staged: Path, repository: Repository) -> None:
    """The good bytes were dropped, as a file of their name was there: each later backup was as damaged."""
    first = backup(staged, repository)
    repository.path_of(first.files[0].sha256).write_bytes(b"mess")
    assert repository.verify(first, ignore) != []
    second = backup(staged, repository)
    assert second.copied_bytes == len(b"messages")
    assert repository.verify(second, ignore) == []


def test_a_damaged_file_that_is_copied_again_is_replaced(staged: Path, repository: Repository) -> None:
    first = backup(staged, repository)
    repository.path_of(first.files[0].sha256).write_bytes(b"massages")
    repository.add(staged / SEGMENT, len(b"messages"), ignore)
    assert repository.verify(first, ignore) == []


def test_what_a_backup_that_was_cut_short_left_is_removed(staged: Path, repository: Repository) -> None:
    """It was looked for in the wrong folder, and stayed for ever."""

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    left = repository.root / "files" / "1.part"
    left.touch()
    with pytest.raises(KeyboardInterrupt):
        repository.add(staged / SEGMENT, len(b"messages"), stop)
    assert list((repository.root / "files").iterdir()) == [left]
    backup(staged, repository)
    assert not left.exists()


def test_a_damaged_manifest_does_not_end_the_next_backup(staged: Path, repository: Repository) -> None:
    first = backup(staged, repository)
    second = backup(staged, repository)
    damage_manifest(repository, second)
    assert backup(staged, repository).files == first.files


def test_nothing_is_deleted_while_it_is_not_known_what_is_needed(
    staged: Path, repository: Repository
) -> None:
    first = backup(staged, repository)
    second = backup(staged, repository)
    damage_manifest(repository, second)
    with pytest.raises(DamagedBackupError):
        repository.drop([first.backup_id])
    assert repository.ids() == [first.backup_id, second.backup_id]


@pytest.mark.parametrize("sealed", [b"messag+footer", b"messages+footer"])
def test_a_segment_that_is_sealed_while_it_is_copied_is_copied_as_sealed(
    staged: Path, repository: Repository, sealed: bytes
) -> None:
    """It was full a moment ago: the copy had its old length, and some bytes of before and some of after."""
    segment = staged / SEGMENT
    progressed: list[int] = []

    def seal(count: int) -> None:
        if not progressed:
            segment.write_bytes(sealed)
            os.utime(segment, ns=(1, 1))
        progressed.append(count)

    with repository.writing():
        made = copying.copy(staged, repository, with_history=True, progress=seal)
    assert repository.path_of(made.files[0].sha256).read_bytes() == sealed
    assert made.files[0].size_bytes == len(sealed)
    assert made.files[0].origin.endswith(f" {len(sealed)} 1")


def test_a_segment_that_is_cut_off_while_it_is_copied_is_copied_again(
    staged: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = staged / SEGMENT
    segment.write_bytes(b"messages and room")
    monkeypatch.setattr("magnetar.server.backup.repository._CHUNK", 4)
    progressed: list[int] = []

    def cut(count: int) -> None:
        if not progressed:
            os.truncate(segment, 8)
        progressed.append(count)

    with repository.writing():
        made = copying.copy(staged, repository, with_history=True, progress=cut)
    assert repository.path_of(made.files[0].sha256).read_bytes() == b"messages"
