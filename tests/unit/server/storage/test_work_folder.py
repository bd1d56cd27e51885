"""Temporary files of history go with their process, and those of a killed one with the next."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from magnetar.server.storage.work_folder import WorkFolder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_it_goes_at_the_end() -> None:
    work = WorkFolder.own()
    (work.path / "x.parquet").write_bytes(b"x")
    work.close()
    work.close()
    assert not work.path.exists()


def test_those_of_killed_processes_go(tmp_path: Path) -> None:
    left = tmp_path / "magnetar-offload-killed"
    left.mkdir()
    (left / "x.parquet").write_bytes(b"x")
    living = WorkFolder.own()
    assert not left.exists()
    other = WorkFolder.own()
    assert living.path.exists(), "its process lives"
    living.close()
    other.close()


def test_that_of_a_data_folder_stays_and_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "offload"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_bytes(b"x")
    (folder / "file").write_bytes(b"x")
    work = WorkFolder.emptied(folder)
    assert list(folder.iterdir()) == []
    work.close()
    assert folder.exists()
