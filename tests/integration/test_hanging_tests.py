"""A test that hangs has failed, and the others run (tools/run_tests.py)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import run_tests

HANGS = """
import threading

def test_before():
    pass

def test_that_hangs():
    threading.Event().wait()

def test_behind():
    pass
"""


def test_a_test_that_hangs_is_a_failure_with_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "test_max_s", lambda stage: 2)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_three.py").write_text(HANGS)
    stage = run_tests.Stage("three", (str(tmp_path / "test_three.py"),), ("-n", "1"))
    with (tmp_path / "said").open("w+") as said:
        outcome = run_tests.attempt(run_tests.Job(stage), [], time.monotonic() + 600, said)
        said.seek(0)
        printed = said.read()
    assert (outcome.passed, outcome.failed) == (2, 1), printed
    assert [test.rpartition("::")[2] for test in outcome.failing] == ["test_that_hangs"]
    assert "Timeout (0:00:02)!" in printed
    assert "in test_that_hangs" in printed
