"""Temporary folders go with their processes, and those of killed ones with the next."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from magnetar.runtime.locked_folder import LockedFolder

PREFIX = "magnetar-tried-"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_only_this_user_may_enter_and_it_goes_at_the_end() -> None:
    folder = LockedFolder.make(PREFIX)
    assert folder.path.name.startswith(PREFIX)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.close()
    folder.close()
    assert not folder.path.exists()


def test_one_whose_processes_have_ended_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}killed"
    left.mkdir()
    (left / "1.sock").touch()
    LockedFolder.make(PREFIX).close()
    assert not left.exists()


def test_one_that_a_child_has_inherited_stays() -> None:
    """As after a kill of the supervisor, while its processes drain."""
    folder = LockedFolder.make(PREFIX)
    inherited = os.dup(folder.descriptor)
    os.close(folder.descriptor)
    LockedFolder.make(PREFIX).close()
    assert folder.path.exists()
    os.close(inherited)
    LockedFolder.make(PREFIX).close()
    assert not folder.path.exists()


def test_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "magnetar-data"
    making = tmp_path / "magnetar-making-now"
    left = tmp_path / "magnetar-making-left"
    for each in (other, making, left):
        each.mkdir()
    an_hour_ago = time.time() - 3600
    os.utime(left, (an_hour_ago, an_hour_ago))
    LockedFolder.make(PREFIX).close()
    assert other.exists()
    assert making.exists(), "its process may not have locked it yet"
    assert not left.exists()
