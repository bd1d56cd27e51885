"""`magnetar functions`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final, TypedDict

import click

from magnetar.adminclient import paths
from magnetar.adminclient.form import FormFile
from magnetar.cli.caller import Caller, calls
from magnetar.cli.functions.configuring import configures, file_part, form_of
from magnetar.cli.functions.local_commands import run, test
from magnetar.cli.verbs import Verb, group

_INSTANCE: Final = click.option(
    "--instance", type=click.IntRange(min=0), help="Only the instance with this number.  [all]"
)
_FOLLOW_S: Final = 0.5
"""Seconds between two looks of `logs --follow`."""
_FILE: Final = click.Path(path_type=Path)


class _Raised(TypedDict):
    """An exception in a status."""

    exceptionString: str


class _Status(TypedDict):
    """Status of an instance, as far as it is shown."""

    running: bool
    error: str
    numRestarts: int
    numReceived: int
    numSuccessfullyProcessed: int
    numUserExceptions: int
    latestUserExceptions: list[_Raised]


class _Instance(TypedDict):
    instanceId: int
    status: _Status


class _Statuses(TypedDict):
    """Answer of `status`."""

    instances: list[_Instance]


_COLUMNS: Final = ("instance", "running", "received", "processed", "failed", "restarts", "error")


def _statuses(found: _Statuses) -> list[dict[str, object]]:
    return [_row(each["instanceId"], each["status"]) for each in found["instances"]]


def _row(instance: int, status: _Status) -> dict[str, object]:
    raised = [each["exceptionString"] for each in status.get("latestUserExceptions") or ()]
    return {
        "instance": instance,
        "running": status["running"],
        "received": status["numReceived"],
        "processed": status["numSuccessfullyProcessed"],
        "failed": status["numUserExceptions"],
        "restarts": status["numRestarts"],
        "error": status.get("error") or "",
        "last_exception": raised[-1] if raised else "",
    }


VERBS: Final = (
    Verb(
        name="list",
        help="Show the functions of NAMESPACE.",
        path="{functions}",
        example="functions list public/default",
    ),
    Verb(
        name="get",
        help="Show the configuration of FUNCTION: NAME in public/default, or TENANT/NAMESPACE/NAME.",
        path="{function}",
        example="functions get exclamation -o json",
    ),
    Verb(
        name="stats",
        help="Show what the instances of FUNCTION have done.",
        path="{function}/stats",
        example="functions stats exclamation -o json",
    ),
    Verb(
        name="delete",
        help="Delete FUNCTION, its code, subscriptions and state. --keep-subscriptions at its creation"
        " lets the last two stay.",
        method="DELETE",
        path="{function}",
        done="{function} is deleted",
        question="Delete function {function}, its code and its state?",
        example="functions delete exclamation",
    ),
    Verb(
        name="state",
        help="Show the state that FUNCTION keeps for KEY.",
        path="{function}/state/{key}",
        example="functions state wordcount hello",
    ),
)


@click.command(
    epilog="Example: magnetar functions create exclamation exclamation.py --input in --output-topic out"
)
@click.argument("function")
@click.argument("code", type=_FILE, required=False)
@configures
@calls
def create(caller: Caller, function: str, code: Path | None, **given: object) -> None:
    """Create FUNCTION from the file CODE, or from --package."""
    with caller.admin() as admin:
        admin.send("POST", paths.function(function), form_of(code, given, creates=True))
    _said(caller, f"{function} is created")


@click.command(epilog="Example: magnetar functions update exclamation exclamation.py --parallelism 2")
@click.argument("function")
@click.argument("code", type=_FILE, required=False)
@configures
@calls
def update(caller: Caller, function: str, code: Path | None, **given: object) -> None:
    """Change the configuration of FUNCTION, its CODE, or both; its instances restart."""
    with caller.admin() as admin:
        admin.send("PUT", paths.function(function), form_of(code, given, creates=False))
    _said(caller, f"{function} is updated")


@click.command(epilog="Example: magnetar functions status exclamation")
@click.argument("function")
@calls
def status(caller: Caller, function: str) -> None:
    """Show what each instance of FUNCTION is doing, and the last traceback with its message."""
    with caller.admin() as admin:
        rows = _statuses(admin.call("GET", f"{paths.function(function)}/status"))
    caller.show(rows, columns=_COLUMNS)
    if caller.output == "table":
        for row in rows:
            if row["last_exception"]:
                click.echo(f"\nInstance {row['instance']}, last exception: {row['last_exception']}")


def _said(caller: Caller, text: str) -> None:
    if caller.output == "table":
        click.echo(text)


def _acting(verb: str, help_text: str, done: str) -> click.Command:
    @click.argument("function")
    @_INSTANCE
    @calls
    def run(caller: Caller, function: str, instance: int | None) -> None:
        path = paths.function(function)
        with caller.admin() as admin:
            admin.call("POST", f"{path}/{verb}" if instance is None else f"{path}/{instance}/{verb}")
        _said(caller, f"{function if instance is None else f'{function}:{instance}'} {done}")

    run.__doc__ = help_text
    return click.command(verb, epilog=f"Example: magnetar functions {verb} exclamation --instance 0")(run)


@click.command(epilog="Example: magnetar functions trigger exclamation --value hello")
@click.argument("function")
@click.option("--value", help="Message to send, a text.  [from --file]")
@click.option("--file", type=_FILE, help="File with the message to send.  [none: --value]")
@click.option("--topic", help="Input to send it to.  [the only one]")
@calls
def trigger(caller: Caller, function: str, value: str | None, file: Path | None, topic: str | None) -> None:
    """Send a message to an input of FUNCTION and show its result."""
    if (value is None) == (file is None):
        raise click.UsageError("give --value or --file")
    parts: dict[str, str | FormFile] = {} if value is None else {"data": value}
    if file is not None:
        parts["dataStream"] = file_part(file)
    if topic is not None:
        parts["topic"] = topic
    with caller.admin() as admin:
        answer = admin.send("POST", f"{paths.function(function)}/trigger", parts)
    click.echo(answer.body.decode("utf-8", "replace"))


@click.command(epilog="Example: magnetar functions logs exclamation -f")
@click.argument("function")
@_INSTANCE
@click.option("-f", "--follow", is_flag=True, help="Continue with what is written from now on, until Ctrl-C.")
@calls
def logs(caller: Caller, function: str, instance: int | None, *, follow: bool) -> None:
    """Show what the instances of FUNCTION wrote last to standard output, standard error and their log."""
    path = paths.function(function)
    with caller.admin() as admin:
        count = 1 if instance is not None else int(admin.call("GET", path)["parallelism"])
        starts = dict.fromkeys([instance] if instance is not None else range(count), 0)
        while True:
            for number, start in starts.items():
                part = admin.call("GET", f"{path}/{number}/output", query={"start": start})
                starts[number] = part["end"]
                for line in part["text"].splitlines():
                    click.echo(f"{number}| {line}" if count > 1 else line)
            if not follow:
                return
            time.sleep(_FOLLOW_S)  # the admin API has no answer that waits for more


@click.command("put-state", epilog="Example: magnetar functions put-state wordcount hello --value 7")
@click.argument("function")
@click.argument("key")
@click.option("--value", required=True, help="The new value, a text.")
@calls
def put_state(caller: Caller, function: str, key: str, value: str) -> None:
    """Set the state that FUNCTION keeps for KEY."""
    state = json.dumps({"key": key, "stringValue": value})
    with caller.admin() as admin:
        admin.send("POST", f"{paths.function(function)}/state/{paths.part(key)}", {"state": state})
    _said(caller, f"{key} is set")


@click.command(epilog="Example: magnetar functions download exclamation exclamation.py")
@click.argument("function")
@click.argument("file", type=_FILE)
@calls
def download(caller: Caller, function: str, file: Path) -> None:
    """Write the code of FUNCTION to FILE."""
    with caller.admin() as admin:
        file.write_bytes(admin.answer(f"{paths.function(function)}/download").body)
    _said(caller, f"{file} is written")


functions = group(
    "functions",
    "Functions: code that runs beside the broker on messages of topics (docs/functions.md).",
    VERBS,
    (
        create,
        update,
        status,
        run,
        test,
        _acting("start", "Start FUNCTION, or one instance, after `stop`.", "is started"),
        _acting(
            "stop", "Stop FUNCTION, or one instance; its messages wait in the subscriptions.", "is stopped"
        ),
        _acting("restart", "End FUNCTION, or one instance, and start it again.", "is restarted"),
        trigger,
        logs,
        put_state,
        download,
    ),
)
