"""kill -9 of functions: nothing is lost, and with effectively once nothing is there twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.running_functions import running_functions, wait_for

pytestmark = [pytest.mark.process, pytest.mark.one_process("kills")]

CODE = b"""
import time

from pulsar import Function

class Count(Function):
    def process(self, input, context):
        time.sleep(0.001)  # so that a kill comes between two messages
        context.incr_counter("calls", 1)
        context.incr_counter("sum", input)
        return input

def doubled(batch: list[int]):
    return [2 * value for value in batch]

async def later(x: int):
    import asyncio
    await asyncio.sleep(0.001 * (x % 7))
    return x

def choosy(x: str):
    if x == "3":
        raise ValueError("not three")
    return x

def stuck(x):
    while True:
        pass
"""


def test_kills_lose_and_double_nothing_with_effectively_once(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.create("Count", processingGuarantees="EFFECTIVELY_ONCE")
        for number in range(5):
            run.fill("in-Count", range(200 * number, 200 * (number + 1)))
            reached = 200 * number + 50
            wait_for(lambda: isinstance(done := run.counter("Count", "calls"), int) and done >= reached)  # noqa: B023  # called at once
            for pid in run.pids():
                os.kill(pid, signal.SIGKILL)
        run.fill("in-Count", range(1000, 1200))
        wait_for(lambda: run.counter("Count", "calls") == 1200)
        assert run.counter("Count", "sum") == sum(range(1200))
        found = run.results("out-Count", 1200)
        assert [message.value for message in found] == [b"%d" % value for value in range(1200)]


def test_kills_lose_nothing_at_least_once(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        for name in ("doubled", "later"):
            run.create(name)
            run.fill(f"in-{name}", range(500))
        wait_for(lambda: len(run.pids()) == 2)
        for pid in run.pids():
            os.kill(pid, signal.SIGKILL)
        for name, factor in (("doubled", 2), ("later", 1)):
            found = {int(message.value) for message in run.results(f"out-{name}", 500)}
            wanted = {factor * value for value in range(500)}
            while found < wanted:
                found |= {int(message.value) for message in run.results(f"out-{name}", 1)}
            assert found == wanted


def test_a_message_that_fails_becomes_a_dead_letter_that_says_why(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.create("choosy", maxMessageRetries=1, deadLetterTopic="dead")
        run.fill("in-choosy", range(6))
        (letter,) = run.results("dead", 1)
        assert letter.value == b"3"
        assert letter.properties["EXCEPTION"] == "ValueError: not three"
        assert letter.properties["ATTEMPTS"] == "2"
        assert 'raise ValueError("not three")' in letter.properties["TRACEBACK"]
        assert [message.value for message in run.results("out-choosy", 5)] == [b"0", b"1", b"2", b"4", b"5"]


def test_a_stuck_function_is_shown_with_its_stack(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.create("stuck")
        run.fill("in-stuck", range(1))
        wait_for(lambda: "in stuck" in str(run.status("stuck")["error"]))
        assert "code.py" in str(run.status("stuck")["error"])
