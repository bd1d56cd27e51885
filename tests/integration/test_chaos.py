"""A cluster of real processes under a short mix of faults, and one with a broken rule, which must be noticed.

Nothing here depends on how long something takes: what must hold is what clients were told. Everything runs in
namespaces of its own and ends with the test. More of it by hand: `./dev chaos`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

REPOSITORY = Path(__file__).parents[2]
DEADLINE_S = 1200
IMPOSSIBLE = 3


def chaos(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of the rig. Skips the test where the machine has no namespaces or no etcd."""
    # What the tests start must end with them, also when they are killed.
    tied = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    done = subprocess.run(
        [*tied, sys.executable, "-m", "chaos", "--folder", str(folder), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip())
    return done


def test_a_short_mix_breaks_no_promise(tmp_path: Path, nightly: bool) -> None:
    """45 seconds of faults at night, 20 by day."""
    seconds = "45" if nightly else "20"
    done = chaos(tmp_path, "--seed", "6020", "--seconds", seconds, "--every", "4", "--rate", "5")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "all hold" in done.stdout
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
    # The run was one: messages went through, and the schedule can be replayed.
    assert " 0 acknowledged" not in done.stdout
    again = chaos(tmp_path, "--replay", str(tmp_path / "schedule.json"), "--schedule")
    assert again.stdout == (tmp_path / "schedule.json").read_text(encoding="utf-8")


def test_a_broken_deduplication_is_noticed(tmp_path: Path) -> None:
    """All bookies stop, and then all brokers are killed: producers send again what has no receipt yet, and
    what the bookies got before is stored too."""
    faults = [
        {"at_s": 6, "kind": "pause", "targets": ["k1", "k2", "k3", "k4"], "for_s": 3},
        {"at_s": 8, "kind": "kill", "targets": ["b1", "b2", "b3"], "for_s": 2},
    ]
    schedule = tmp_path / "faults.json"
    schedule.write_text(
        "".join(json.dumps({**each, "strength": 0}) + "\n" for each in faults), encoding="utf-8"
    )
    broken = ("--replay", str(schedule), "--break", "duplicates")
    done = chaos(tmp_path / "run", "--seconds", "12", "--rate", "10", *broken)
    assert done.returncode == 1, done.stdout[-6000:] + done.stderr[-2000:]
    assert "VIOLATION doubled: dedup-" in done.stdout
