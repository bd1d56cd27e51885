"""Functions of `magnetar standalone --processes`: one process runs them, whichever is asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.running_functions import running_functions, wait_for
from support.sharing_processes import processes
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

CODE = b"""
from pulsar import Function

class Count(Function):
    def process(self, input, context):
        context.incr_counter("sum", input)
        return input
"""


def first_process(server: StandaloneProcess) -> int:
    return next(int(each["pid"]) for each in processes(server) if each["number"] == 1)


def test_a_function_counts_each_message_once_while_its_process_is_killed(tmp_path: Path) -> None:
    """The topics of the function are spread over all processes."""
    with running_functions(tmp_path, CODE, options=("--processes", "3")) as run:
        inputs = [f"in-{number}" for number in range(4)]
        run.create("Count", inputs=inputs, processingGuarantees="EFFECTIVELY_ONCE")
        for round_ in range(3):
            for number, topic in enumerate(inputs):
                first = 100 * (4 * round_ + number)
                run.fill(topic, range(first, first + 100))
            killed = first_process(run.process)
            if round_ < 2:
                os.kill(killed, signal.SIGKILL)
                wait_for(lambda: first_process(run.process) != killed)  # noqa: B023  # called at once
        wait_for(lambda: run.counter("Count", "sum") == sum(range(1200)))
        found = run.results("out-Count", 1200)
        assert sorted(int(message.value) for message in found) == list(range(1200))
