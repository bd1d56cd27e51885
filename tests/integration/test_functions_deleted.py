"""A deleted function leaves no subscription and no state, unless they shall stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.adminclient import paths
from support.running_functions import RunningFunctions, running_functions, wait_for

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

CODE = b"""
def count(input, context):
    context.incr_counter("calls", 1)
"""


def _ran(run: RunningFunctions, calls: int, **config: object) -> None:
    run.create("count", output="", **config)
    wait_for(lambda: run.counter("count", "calls") == calls)


def _subscriptions(run: RunningFunctions, topic: str = "in-count") -> object:
    return run.admin.call("GET", f"{paths.topic(topic)}/subscriptions")


def test_it_leaves_nothing(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.admin.call("PUT", f"{paths.topic('parted')}/partitions", body=2)
        run.fill("in-count", range(10))
        pattern = {"persistent://public/default/pattern-.*": {"isRegexPattern": True}}
        run.fill("pattern-a", range(5))
        _ran(run, 15, inputs=["in-count", "parted"], inputSpecs=pattern)
        assert _subscriptions(run) == ["public/default/count"]
        run.admin.call("DELETE", paths.function("count"))
        for topic in ("in-count", "parted", "pattern-a"):
            assert _subscriptions(run, topic) == []
        assert not list(run.process.data_dir.glob("functions/state/**/*.sqlite*"))
        assert run.pids() == []
        # One of the same name begins anew.
        _ran(run, 10)


def test_what_shall_stay_stays(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.fill("in-count", range(10))
        _ran(run, 10, cleanupSubscription=False)
        run.admin.call("DELETE", paths.function("count"))
        assert _subscriptions(run) == ["public/default/count"]
        run.fill("in-count", range(10))
        _ran(run, 20)


def test_a_function_whose_deletion_was_cut_off_is_deleted_by_the_next_call(tmp_path: Path) -> None:
    with running_functions(tmp_path, CODE) as run:
        run.fill("in-count", range(10))
        _ran(run, 10)
        run.admin.call("POST", f"{paths.function('count')}/stop")
        run.admin.call("DELETE", paths.function("count"))
        assert _subscriptions(run) == []
