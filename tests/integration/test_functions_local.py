"""`magnetar functions run --local`: a debugger works, and new code counts from the next message on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.adminclient import paths
from support.running_functions import RunningFunctions, running_functions, wait_for

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

CODE = """
def process(input: str, context):
    {first}
    context.incr_counter("calls", 1)
    return f"{{input}} {version} {{context.get_counter('calls')}}"
"""


class LocalRun:
    """The command, its terminal and its code."""

    def __init__(self, run: RunningFunctions, folder: Path) -> None:
        self.file = folder / "shown.py"
        self._output = folder / "output"
        self.save(CODE.format(first="breakpoint()", version="v1"))
        command = ("functions", "run", "--local", str(self.file), "--input", "orders", "--from", "earliest")
        place = ("--url", run.process.broker_url, "--admin-url", run.process.http_url)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "magnetar", *command, *place],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "MAGNETAR_CONTEXTS": str(folder / "contexts.json")},
            )

    def save(self, code: str) -> None:
        # As an editor does it: a new file takes the place of the old one.
        new = self.file.with_suffix(".new")
        new.write_text(code)
        new.replace(self.file)

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def shows(self, text: str) -> None:
        wait_for(lambda: text in self._output.read_text() or self.process.poll() is not None)
        assert text in self._output.read_text()


def test_code_is_debugged_and_renewed_while_it_runs(tmp_path: Path) -> None:
    with running_functions(tmp_path / "data", b"") as run:
        local = LocalRun(run, tmp_path)
        try:
            run.fill_with("orders", [b"one"])
            local.shows("(Pdb)")
            local.type("p input + '?'\n")
            local.shows("'one?'")
            local.type("c\n")
            local.shows("'one v1 1'")
            local.save(CODE.format(first="", version="v2"))
            local.shows("shown.py: new code from the next message on")
            run.fill_with("orders", [b"two"])
            local.shows("'two v2 2'")
            local.save("def process(:")
            local.shows("SyntaxError")
            run.fill_with("orders", [b"three"])
            local.shows("'three v2 3'")
            local.save(CODE.format(first="if input == 'four': raise ValueError('no')", version="v3"))
            run.fill_with("orders", [b"four"])
            local.shows("ValueError: no")
            local.save(CODE.format(first="", version="v4"))
            local.shows("'four v4 4'")
            local.process.send_signal(signal.SIGINT)
            assert local.process.wait(30) == 0
        finally:
            local.process.kill()
            local.process.wait()
        stats = run.admin.call("GET", f"{paths.topic('orders')}/stats")
        assert stats["subscriptions"] == {}
