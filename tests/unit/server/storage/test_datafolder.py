"""Taking a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.storage.datafolder import DataFolder


def test_a_new_folder_is_made_and_may_be_taken_again(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    folder = DataFolder(root)
    assert (root / "FORMAT").read_text() == "1\n"
    assert folder.metadata_file.is_relative_to(root)
    assert folder.bookie_dir.is_relative_to(root)
    with pytest.raises(StartupError, match="in use"):
        DataFolder(root)
    folder.release()
    folder.release()
    DataFolder(root).release()


@pytest.mark.parametrize(
    ("content", "said"), [("2\n", "format 2, this release knows up to 1"), ("x", "is damaged")]
)
def test_other_formats_are_refused_and_the_lock_given_back(tmp_path: Path, content: str, said: str) -> None:
    DataFolder(tmp_path).release()
    (tmp_path / "FORMAT").write_text(content)
    for _ in range(2):
        with pytest.raises(StartupError, match=said):
            DataFolder(tmp_path)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"file cannot be used: .*; choose another one"):
        DataFolder(tmp_path / "file")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.server.storage.datafolder.ROOM_BYTES_MIN", 1 << 62)
    with pytest.raises(StartupError, match="no space left for the data folder"):
        DataFolder(tmp_path)


def test_a_folder_is_taken_again_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recovery gives room back, and deleting needs a broker; it used to be refused."""
    DataFolder(tmp_path).release()
    monkeypatch.setattr("magnetar.server.storage.datafolder.ROOM_BYTES_MIN", 1 << 62)
    DataFolder(tmp_path).release()


def test_nobody_else_may_enter(tmp_path: Path) -> None:
    """An existing folder kept the rights of the umask, with all messages and metadata in it."""
    root = tmp_path / "there"
    root.mkdir()
    for place in (root, root / "metadata", root / "bookie"):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    DataFolder(root).release()
    for place in (root, root / "metadata", root / "bookie"):
        assert place.stat().st_mode & 0o777 == 0o700, place
