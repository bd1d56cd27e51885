"""Which files are a function's code, and when they change."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from magnetar.functions.local.code_watch import CodeWatch


def touch(path: Path, text: str) -> None:
    path.write_text(text)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def test_the_file_and_what_it_imports_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, beside = tmp_path / "f_watched.py", tmp_path / "beside_watched.py"
    touch(file, "x = 1")
    touch(beside, "y = 1")
    monkeypatch.syspath_prepend(tmp_path)
    watch = CodeWatch(file)
    assert watch.changed() == []
    module = importlib.import_module("beside_watched")
    try:
        watch.look_for_more()
        assert watch.changed() == [], "a module that is new has not changed"
        touch(beside, "y = 22")
        assert watch.changed() == ["beside_watched.py"]
        old = watch.forget()
        assert "beside_watched" not in sys.modules
        watch.put_back(old)
        assert sys.modules["beside_watched"] is module
        watch.look()
        touch(file, "x = 22")
        assert watch.changed() == ["f_watched.py"]
    finally:
        sys.modules.pop("beside_watched", None)


def test_a_file_that_is_gone_for_a_moment_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "f_watched.py"
    touch(file, "x = 1")
    watch = CodeWatch(file)
    file.unlink()
    assert watch.changed() == ["f_watched.py"]


def test_modules_of_an_environment_are_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    touch(folder / "kept_watched.py", "")
    touch(tmp_path / "f_watched.py", "")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("kept_watched")
    try:
        assert CodeWatch(tmp_path / "f_watched.py").forget() == {}
    finally:
        sys.modules.pop("kept_watched", None)
