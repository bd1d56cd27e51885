"""The compiled twin: what is asked for, what turns it off, what a clean-up takes away."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import build_twin
import pytest
import twin_build

from magnetar import twin

PACKAGE = Path(twin.__file__).parent


def tree(root: Path) -> Path:
    """The sources of the hot modules alone, below `root`; returns the package's folder."""
    package = root / "src" / "magnetar"
    for name in twin.MODULES:
        source = Path(twin.source_of(package, name))
        source.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(twin.source_of(PACKAGE, name), source)
    return package


def test_the_compiler_is_the_locked_one() -> None:
    assert twin_build.locked("mypy").startswith("mypy==")
    assert twin_build.locked("no-such-package") == "no-such-package"


def test_metadata_and_editable_installations_compile_nothing() -> None:
    assert twin_build.extensions(["egg_info"]) == []
    assert twin_build.extensions(["editable_wheel"]) == []


def test_pure_is_respected_when_building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert not twin_build.wanted()
    assert twin_build.extensions(["bdist_wheel"]) == []


def test_an_edit_makes_a_build_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tree(tmp_path)
    monkeypatch.setattr(twin, "_PACKAGE", package)
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    (package / twin.STAMP).write_text(twin.fingerprint(package))
    twin.choose()
    assert sys.meta_path == []
    with Path(twin.source_of(package, twin.MODULES[0])).open("a") as source:
        source.write("\n")
    twin.choose()
    assert len(sys.meta_path) == 1
    assert twin.description() == "pure Python: sources changed since ./dev build"


def test_pure_finds_sources_of_the_hot_modules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    twin.choose()
    (finder,) = sys.meta_path
    spec = finder.find_spec(twin.MODULES[0], None)
    assert spec is not None
    assert spec.origin == twin.source_of(PACKAGE, twin.MODULES[0])
    assert finder.find_spec("magnetar.broker", None) is None


def test_clean_takes_away_what_a_build_leaves_and_no_source(tmp_path: Path) -> None:
    package = tree(tmp_path)
    (package / "wire" / "frames.cpython-311-x86_64-linux-gnu.so").touch()
    (package.parent / "magnetar_hot__mypyc.cpython-311-x86_64-linux-gnu.so").touch()
    (package / twin.STAMP).touch()
    assert build_twin.clean(tmp_path) == 3
    assert build_twin.clean(tmp_path) == 0
    assert len(list(package.rglob("*.py"))) == len(twin.MODULES)
