"""Errors of jobs, as Spark words them: the line to look at comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.spark.pipelines.failures import explain, reason_of, worker_traceback

UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be"
    " resolved. Did you mean one of the following? [`id`]."
)
WORKER = """[STREAM_FAILED] Query [id = 2f, runId = 27] terminated with exception: [PYTHON_EXCEPTION] An \
exception was thrown from the Python worker: Traceback (most recent call last):
  File "{worker}", line 90, in main
    process()
  File "{job}", line 2, in invert
    return 1 // (value - 1)
           ~~^^~~~~~~~~~~~~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: inverted [id = 2f, runId = 27]
"""
LIBRARY = "/env/lib/python3.11/site-packages/pyspark/worker.py"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.py"
    file.write_text("def invert(value):\n    return 1 // (value - 1)\n\ninvert(1)\n")
    return file


def raised(job: Path, error: Exception) -> Exception:
    """The error with a traceback through the job's last line and a library."""
    code = compile("\n\n\nraise error", str(job), "exec")
    with pytest.raises(type(error)) as caught:
        exec(code, {"error": error})
    return caught.value


def test_the_line_of_the_program_then_the_reason(job: Path) -> None:
    error = raised(job, ValueError(f"{UNRESOLVED} SQLSTATE: 42703;\n'Project ['nope]\n+- Range (0, 3)\n"))
    assert explain(error, job.parent) == [f"{job}:4\n    invert(1)", UNRESOLVED]


def test_an_error_in_a_worker_names_its_own_line(job: Path) -> None:
    error = raised(job, RuntimeError(WORKER.format(worker=LIBRARY, job=job)))
    assert explain(error, job.parent) == [
        f"{job}:2, in invert\n    return 1 // (value - 1)",
        "query inverted",
        "ZeroDivisionError: integer division or modulo by zero",
    ]


def test_an_error_inside_a_library_names_the_line_that_led_there(job: Path) -> None:
    error = raised(job, RuntimeError(WORKER.format(worker=LIBRARY, job=LIBRARY)))
    assert explain(error, job.parent)[0] == f"{job}:4\n    invert(1)"


def test_a_query_that_ends_elsewhere_is_named(tmp_path: Path) -> None:
    message = (
        "[STREAM_FAILED] Query [id = 2f, runId = 27] terminated with exception: no room. SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: by-minute [id = 2f, runId = 27]\nCurrent State: ACTIVE\n"
    )
    assert explain(RuntimeError(message), tmp_path) == [
        "query by-minute",
        "[STREAM_FAILED] Query [id = 2f, runId = 27] terminated with exception: no room.",
    ]


@pytest.mark.parametrize("in_message", [True, False])
def test_sql_is_shown_where_it_is_wrong(job: Path, *, in_message: bool) -> None:
    place = "== SQL (line 3, position 3) ==\n  nope + 1\n  ^^^^\n"
    error = raised(job, ValueError(f"{UNRESOLVED}\n\n{place}" if in_message else UNRESOLVED))
    lines = explain(error, job.parent, "" if in_message else place)
    assert lines == [f"{job}:4\n    invert(1)", "SQL line 3:\n      nope + 1\n      ^^^^", UNRESOLVED]


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    with pytest.raises(SyntaxError) as caught:
        compile("a = 1\nb = = 2\n", str(file), "exec")
    assert explain(caught.value, tmp_path)[0] == f"{file}:2\n    b = = 2"


def test_stacks_and_plans_are_left_out() -> None:
    message = (
        "[ERROR] what happened\nmore of it\n\tat org.apache.spark.Thing.run(Thing.scala:1)\n\t... 3 more"
    )
    assert reason_of(message) == "[ERROR] what happened\nmore of it"


def test_messages_without_a_traceback() -> None:
    assert worker_traceback("nothing of Python in it") is None


def test_a_worker_that_did_not_start_in_time_comes_with_what_to_do(job: Path) -> None:
    message = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
    reason, hint = explain(RuntimeError(message), job.parent)[-2:]
    assert "failed to connect back" in reason
    assert "Run it again" in hint
    assert "PYSPARK_PYTHON" in hint
