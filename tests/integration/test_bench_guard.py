"""The hot paths did not become a multiple dearer. What it prints is the report; noise does not fail it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.one_process("own")]


def test_no_hot_path_costs_a_multiple_of_its_baseline() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "guard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "publish 1 KiB, batched" in done.stdout
