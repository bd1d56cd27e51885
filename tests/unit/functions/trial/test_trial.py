"""Recorded messages go the way of an instance, in no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.functions.instance.plan import EFFECTIVELY_ONCE, InputPlan, InstancePlan, WindowPlan
from magnetar.functions.trial.recorded import recorded
from magnetar.functions.trial.trial import TrialFindings, tried

T0 = 1_700_000_000_000


def trial(folder: Path, code: str, *messages: tuple[str, float], **fields: object) -> TrialFindings:
    """`messages`: value, and seconds after the first one."""
    file = folder / "code_of_test.py"
    file.write_text(code)
    plan = InstancePlan(
        name="f",
        class_name="code_of_test",
        package=str(file),
        inputs=(InputPlan(topic="in"),),
        output="out",
        subscription="s",
        subscription_type="Shared",
        service_url="pulsar://nowhere:1",
        admin_url="",
        **fields,  # type: ignore[arg-type]  # the test's own fields
    )
    lines = (
        f'{{"topic": "in", "value": "{value}", "publish_time": {T0 + int(at * 1000)}}}'
        for value, at in messages
    )
    return tried(plan, recorded(lines), folder)


def values(found: TrialFindings) -> list[object]:
    return [line.get("value") for line in found.lines if "topic" in line]


def test_results_state_and_failures(tmp_path: Path) -> None:
    code = (
        "def process(x: str, context):\n    if x == 'bad':\n        raise ValueError('no')\n"
        "    context.incr_counter('n', 1)\n    return x.upper()\n"
    )
    found = trial(tmp_path, code, ("a", 0), ("bad", 1), ("c", 2))
    assert found.lines == [
        {"topic": "out", "value": "A"},
        {"failed": "0:1:-1:-1", "exception": "ValueError: no", "value": "bad"},
        {"topic": "out", "value": "C"},
        {"state": "n", "number": 2},
    ]
    assert len(found.failures) == 1
    assert not found.stopped


def test_time_is_that_of_the_messages(tmp_path: Path) -> None:
    code = "import time\ndef process(x):\n    time.sleep(5)\n    return int(time.time())\n"
    found = trial(tmp_path, code, ("a", 0), ("b", 1), ("c", 86_400))
    assert values(found) == ["1700000005", "1700000010", "1700086405"]


def test_async_calls_overlap_in_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, time\nasync def process(x: str):\n    await asyncio.sleep(10)\n"
        "    return f'{x} {time.time():.0f}'\n"
    )
    found = trial(tmp_path, code, ("a", 0), ("b", 1), ("c", 2))
    assert values(found) == ["a 1700000010", "b 1700000011", "c 1700000012"]
    assert found.notes == []


def test_an_async_call_that_does_not_end_is_named(tmp_path: Path) -> None:
    code = "import asyncio\nasync def process(x):\n    await asyncio.Event().wait()\n"
    assert "a call had not ended a day after the last message" in trial(tmp_path, code, ("a", 0)).notes


def test_repeated_calls_come_at_their_time(tmp_path: Path) -> None:
    code = (
        "import time\ncalls = []\ndef process(x):\n    calls.append(time.time())\n"
        "    if len(calls) < 3:\n        raise ValueError\n    return repr([at - calls[0] for at in calls])\n"
    )
    found = trial(tmp_path, code, ("a", 0), retries_max=5, dead_letter_topic="dead")
    (spans,) = values(found)
    assert [round(span, 3) for span in spans] == [0.0, 0.1, 0.3]  # type: ignore[attr-defined]  # a list of JSON


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", EFFECTIVELY_ONCE])
def test_windows_end_at_their_time(tmp_path: Path, guarantee: str) -> None:
    code = "def process(values: list[str]):\n    return '+'.join(values)\n"
    window = WindowPlan(length_ms=2000, slide_ms=1000)
    found = trial(tmp_path, code, ("a", 0), ("b", 1), ("c", 10), window=window, guarantee=guarantee)
    assert values(found) == ["a", "a+b", "b", "c", "c"]
    assert found.notes == []


def test_a_window_of_messages_that_stays_open_is_named(tmp_path: Path) -> None:
    code = "def process(values: list[str]):\n    return '+'.join(values)\n"
    found = trial(tmp_path, code, ("a", 0), ("b", 0), ("c", 0), window=WindowPlan(length_count=2))
    assert values(found) == ["a+b"]
    assert found.notes == ["1 of 3 messages are in a window that is not complete"]


def test_a_list_that_fails_for_ever_ends_the_trial(tmp_path: Path) -> None:
    found = trial(tmp_path, "def process(batch):\n    raise KeyError(1)\n", ("a", 0), ("b", 1), ordered=True)
    assert found.stopped
    assert "KeyError" in found.failures[0]


def test_values_of_a_state_end_at_their_time(tmp_path: Path) -> None:
    code = (
        "def process(x: str, context):\n    found = context.get_state('k')\n"
        "    context.put_state('k', x, ttl_s=60)\n    return repr(found)\n"
    )
    assert values(trial(tmp_path, code, ("a", 0), ("b", 59), ("c", 130))) == ["None", "b'a'", "None"]
