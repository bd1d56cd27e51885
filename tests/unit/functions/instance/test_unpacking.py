"""Archives are unpacked within their folder, or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from magnetar.functions.errors import CodeError
from magnetar.functions.instance.unpacking import import_paths


def archive(folder: Path, name: str, files: dict[str, str]) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as opened:
        for file, text in files.items():
            opened.writestr(file, text)
    return path


def test_a_zip_has_its_source_and_its_wheels(tmp_path: Path) -> None:
    wheel = archive(tmp_path, "dep-1-py3-none-any.whl", {"dep.py": "x = 1"})
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("code/src/f.py", "y = 2")
        opened.write(wheel, "code/deps/dep-1-py3-none-any.whl")
    places = [Path(place) for place in import_paths(path, tmp_path / "out")]
    assert [(place / name).exists() for place, name in zip(places, ("f.py", "dep.py"), strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py", "..\\evil.py"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    """As CVE-2024-27317 of Pulsar."""
    path = archive(tmp_path, "code.zip", {name: "boom"})
    with pytest.raises(CodeError, match="leads out of its folder"):
        import_paths(path, tmp_path / "out")
    assert not list(tmp_path.rglob("evil.py"))


def test_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as opened:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(CodeError, match="link"):
        import_paths(path, tmp_path / "out")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "code.jar"
    path.write_bytes(b"no archive")
    with pytest.raises(CodeError, match=r"none of \.py, \.whl and \.zip"):
        import_paths(path, tmp_path / "out")
