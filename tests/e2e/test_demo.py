"""The tour from its command line: a month of flights through broker, Spark and official clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

TOUR = [sys.executable, "-m", "magnetar.demo", "--quick"]
DEADLINE_S = 900.0


def test_a_month_agrees_to_the_last_row(tmp_path: Path) -> None:
    """Exit 0 and a summary in which stream, batch and the independent computation are equal."""
    summary_path = tmp_path / "summary.json"
    done = subprocess.run(
        [*TOUR, "--out", str(tmp_path / "out"), "--json", str(summary_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(summary_path.read_text())
    assert summary["agree"], summary["failures"]
    assert set(summary["rows"].values()) == {5430}
    assert summary["lost"] == 0
    assert summary["duplicates_removed"] == summary["duplicates_sent"] > 0
    assert summary["late_rows"] > summary["dead_letters"] > 0
    assert summary["dropped_by_watermark"] == 0
    assert summary["alerts"]["received"] == summary["alerts"]["expected"] > 0
    assert summary["alerts"]["in_order"]
    assert summary["publish_msgs_per_s"] > 0
    assert summary["duration_s"] > 0
    assert Path(summary["chart"]).read_bytes().startswith(b"\x89PNG")
    assert list(Path(summary["parquet"]).glob("*.parquet"))
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "moment",
    [
        "starting",
        pytest.param("streaming", marks=pytest.mark.nightly("an interrupted pipeline stops its queries")),
    ],
)
def test_interrupt_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    """Ctrl-C ends tour, Spark and broker, says so in one line, and exits 130."""
    out = tmp_path / "out"
    tour = subprocess.Popen(
        [*TOUR, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    # The sign of each moment: the broker's data folder, and the main query's first finished batch.
    sign = out / "broker" if moment == "starting" else out / "checkpoints" / "delays" / "commits" / "0"
    try:
        _await(lambda: sign.exists() or tour.poll() is not None)
        assert tour.poll() is None, tour.stdout.read() if tour.stdout else ""
        family = _descendants(tour.pid)
        assert family
        tour.send_signal(signal.SIGINT)
        output, _ = tour.communicate(timeout=60)
    finally:
        tour.kill()
    assert tour.returncode == 130, output
    assert "Stopping." in output
    assert "Traceback" not in output
    _await(lambda: not any(_alive(pid) for pid in family))


CONDITION_S = 600
"""Spark's first batch takes seconds, and minutes where others use the cores."""


def _await(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + CONDITION_S
    while not condition():
        assert time.monotonic() < deadline, f"condition not met within {CONDITION_S} s"
        time.sleep(0.05)


def _descendants(pid: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} | found
        if more == found:
            return found - {pid}
        found = more


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
