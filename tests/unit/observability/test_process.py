"""Figures of the process, from files that the kernel would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.observability import process


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("52713941 1500000000 401\n", 1.5), ("52713941", 0.0), ("what is this", 0.0), (None, 0.0)],
    ids=["as in proc(5)", "without the wait", "not numbers", "no file"],
)
def test_the_wait_for_a_processor(
    told: str | None, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PROC", tmp_path)
    if told is not None:
        (tmp_path / "schedstat").write_text(told)
    assert process.waited_s() == seconds
