"""What `./dev test --costs` prints."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

from support.costs import Costs, ProcessTree

BUSY = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "


def test_workers_hand_over_what_they_measured() -> None:
    costs = Costs(1)
    for output in (
        {"costs": (1.5, {"tests/a.py::x": [2.0, 3.0], "tests/a.py::y": [1.0, 1.0]})},
        {"costs": (0.5, {"tests/b.py::z": [2.5, 4.0]})},
        # A worker that died.
        {},
    ):
        costs.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    assert list(costs.lines()) == [
        "costs: 5.5 CPU s of 3 tests in 2 files",
        "and 2.0 CPU s until the tests were collected",
        "  CPU s  wall s  tests  file",
        "   3.00    4.00      2  tests/a.py",
        "  CPU s  wall s  test",
        "   2.50    4.00  tests/b.py::z",
    ]


def test_processes_below_count_while_they_run_and_when_they_ended() -> None:
    tree = ProcessTree()
    before_s = tree.cpu_s()
    # Its answer says that it has worked; then it waits for its input to end.
    with subprocess.Popen(
        ["sh", "-c", BUSY + "echo done; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        running_s = tree.cpu_s()
    assert before_s < running_s <= tree.cpu_s()
