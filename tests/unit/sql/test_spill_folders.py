"""The folder of a query goes with it; one that a killed query left goes with the next query."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar.sql import spill_folders
from magnetar.sql.spill_folders import PREFIX, SpillFolder


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_a_folder_is_its_user_s_own_and_is_deleted(tmp_path: Path) -> None:
    folder = SpillFolder(str(tmp_path))
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    (Path(folder.path) / "rows").write_bytes(b"x")
    folder.close()
    folder.close()
    assert left(tmp_path) == []


def test_what_a_killed_query_left_is_deleted_and_what_runs_is_not(tmp_path: Path) -> None:
    killed = tmp_path / f"{PREFIX}killed"
    killed.mkdir()
    (killed / "rows").write_bytes(b"x")
    (tmp_path / "of others").mkdir()
    (tmp_path / f"{PREFIX}file").write_bytes(b"x")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "of others")
    running = SpillFolder(str(tmp_path))
    second = SpillFolder(str(tmp_path))
    assert not killed.exists()
    assert Path(running.path).is_dir()
    running.close()
    second.close()
    assert left(tmp_path) == [f"{PREFIX}file", f"{PREFIX}link", "of others"]


def test_a_folder_that_a_cleaner_took_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that would lose: made; taken by a cleaner, which finds no lock; locked, and used without a
    name."""
    made: list[str] = []
    make = spill_folders.tempfile.mkdtemp

    def taken_once(**options: str) -> str:
        path = make(**options)
        made.append(path)
        return path

    lock = spill_folders.fcntl.flock

    def locked(descriptor: int, kind: int) -> None:
        if len(made) == 1 and kind == spill_folders.fcntl.LOCK_EX:
            os.rmdir(made[0])
        lock(descriptor, kind)

    monkeypatch.setattr(spill_folders.tempfile, "mkdtemp", taken_once)
    monkeypatch.setattr(spill_folders.fcntl, "flock", locked)
    folder = SpillFolder(str(tmp_path))
    assert len(made) == 2
    assert folder.path == made[1]
    assert Path(folder.path).is_dir()
    folder.close()


def test_a_folder_that_a_cleaner_took_before_it_was_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = spill_folders.tempfile.mkdtemp

    def taken_once(**options: str) -> str:
        path = make(**options)
        if not made:
            os.rmdir(path)
        made.append(path)
        return path

    monkeypatch.setattr(spill_folders.tempfile, "mkdtemp", taken_once)
    folder = SpillFolder(str(tmp_path))
    assert len(made) == 2
    assert Path(folder.path).is_dir()
    folder.close()
