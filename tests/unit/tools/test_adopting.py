"""What a command leaves is waited for, and counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ADOPTING = Path(__file__).parents[3] / "tools" / "adopting.py"
LEAVES = """
import os, time
out, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    # Ends when the parent has.
    os.read(out, 1)
    while time.process_time() < 0.2:
        pass
"""
ADOPTS = sys.platform == "linux"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ADOPTING), *command], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_code_is_that_of_the_command(command: str, code: int) -> None:
    assert run("sh", "-c", command).returncode == code


@pytest.mark.skipif(not ADOPTS, reason="Linux alone gives orphans to another process than the first one")
def test_what_the_command_leaves_counts() -> None:
    before = os.times()
    assert run(sys.executable, "-c", LEAVES).returncode == 0
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system > 0.2
