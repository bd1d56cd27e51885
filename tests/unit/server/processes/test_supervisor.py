"""Where broker processes meet."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.processes.supervisor import meeting_folder


def test_only_this_user_may_enter() -> None:
    with meeting_folder() as folder:
        assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_it_the_start_says_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StartupError, match="name a folder for temporary files"):
        meeting_folder()
