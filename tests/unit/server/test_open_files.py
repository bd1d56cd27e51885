"""The limit of open files is raised to what is allowed."""

from __future__ import annotations

import resource

import pytest

from magnetar.server import open_files


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 4096, 4096),
        (1024, 1 << 30, open_files.OPEN_FILES_WANTED),
        (1024, -1, open_files.OPEN_FILES_WANTED),
        (4096, 4096, 4096),
        (1 << 21, 1 << 22, 1 << 21),
        (-1, -1, -1),
    ],
)
def test_as_much_as_is_allowed_and_useful(soft: int, hard: int, wanted: int) -> None:
    assert open_files.wanted_limit(soft, hard, unlimited=-1) == wanted


@pytest.mark.parametrize(("hard", "warned"), [(500, True), (50_000, False)])
def test_too_few_are_told(
    hard: int, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert open_files.raise_limit() == hard
    assert asked == [(hard, hard)]
    assert ("about 244 connections" in caplog.text) is warned


def test_a_refusal_leaves_the_limit_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError(f"not {limits}")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 50_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert open_files.raise_limit() == 20_000
    assert "stays at 20000" in caplog.text
