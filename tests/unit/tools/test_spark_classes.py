"""The archive of Spark's classes is made once, and nothing fails without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import spark_classes


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Archives that were made, in place of a Java that takes a minute for it."""

    def make(java: Path, folder: Path) -> None:
        made.append(java)
        (folder / spark_classes.SPARK).touch()

    made: list[Path] = []
    monkeypatch.setattr(spark_classes, "find_java_home", lambda _: tmp_path)
    monkeypatch.setattr(spark_classes, "_describe", lambda _: "Java 17")
    monkeypatch.setattr(spark_classes, "_make", make)
    return made


def test_one_is_made_for_each_java(
    archives: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "classes"
    assert spark_classes.options(folder) == spark_classes.LIGHT
    assert spark_classes.make(folder)
    assert spark_classes.make(folder)
    assert archives == [tmp_path / "bin" / "java"]
    assert f"-XX:SharedArchiveFile={folder / spark_classes.SPARK}" in spark_classes.options(folder).split()
    monkeypatch.setattr(spark_classes, "_describe", lambda _: "Java 21")
    assert spark_classes.make(folder)
    assert len(archives) == 2


def test_a_java_that_makes_none_is_asked_once(
    archives: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(java: Path, folder: Path) -> None:
        (folder / spark_classes.SPARK).touch()
        spark_classes._run(["sh", "-c", "echo cannot; exit 1"], {})

    monkeypatch.setattr(spark_classes, "_make", refuse)
    folder = tmp_path / "classes"
    assert not spark_classes.make(folder)
    assert capsys.readouterr().out == "no archive of Spark's classes: cannot\n"
    assert not spark_classes.make(folder)
    assert capsys.readouterr().out == ""
    assert spark_classes.options(folder) == spark_classes.LIGHT


def test_options_cannot_have_spaces(archives: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / spark_classes.SPARK).touch()
    assert spark_classes.options(folder) == spark_classes.LIGHT
    assert not spark_classes.make(folder)
    assert archives == []


def test_an_environment_whose_path_has_spaces_has_its_archive_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert spark_classes.folder_of(Path("/one")) == Path("/one/spark-classes")
    folders = {spark_classes.folder_of(Path(f"/one {name}")) for name in ("two", "three")}
    assert len(folders) == 2
    assert {folder.parent for folder in folders} == {Path("/cache/magnetar")}


def test_the_folder_of_archives_is_made(
    archives: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert spark_classes.make(spark_classes.folder_of(Path("/one two")))
