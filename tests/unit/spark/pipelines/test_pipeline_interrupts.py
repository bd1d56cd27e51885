"""What a run takes for an interrupt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.spark.pipelines.run import PipelineRun, RunSettings


def interrupted() -> int:
    raise KeyboardInterrupt


def broken_by_an_interrupt() -> int:
    """A call of the bridge to the JVM after an interrupt hit its connection."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ConnectionError("Answer from Java side is empty") from None


def broken() -> int:
    raise ConnectionError("Answer from Java side is empty")


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        (interrupted, 130, "Stopped."),
        (broken_by_an_interrupt, 130, "Stopped."),
        (broken, 1, "ConnectionError: Answer from Java side is empty"),
    ],
)
def test_what_ends_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], work: Callable[[], int], code: int, said: str
) -> None:
    run = PipelineRun(tmp_path / "job.py", RunSettings(log_file=tmp_path / "log"))
    assert run.guarded(work, lambda: None) == code
    assert said in capsys.readouterr().err
