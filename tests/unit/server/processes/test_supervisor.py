"""Where broker processes meet."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.processes.supervisor import FOLDER_PREFIX, meeting_folder


def test_it_goes_at_the_end_and_those_of_killed_supervisors_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{FOLDER_PREFIX}killed"
    left.mkdir()
    with meeting_folder() as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert [*tmp_path.iterdir()] == [folder.path]
    assert [*tmp_path.iterdir()] == []


def test_without_a_place_for_it_the_start_says_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StartupError, match="name a folder for temporary files"), meeting_folder():
        pass
