"""`magnetar functions run --local` and `magnetar functions test`: functions on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magnetar.cli.caller import Caller, calls
from magnetar.cli.functions.configuring import config_document, configures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.functions.instance.plan import InstancePlan
    from magnetar.functions.trial.findings import Line
    from magnetar.functions.trial.recorded import RecordedMessage
    from magnetar.functions.trial.trial import TrialFindings

_FILE: Final = click.Path(path_type=Path)


@click.command(epilog="Example: magnetar functions run --local exclamation.py --input orders")
@click.option("--local", "code", type=_FILE, required=True, help="File with the code, run in this process.")
@click.option("--state", type=_FILE, help="File that keeps the state after the run.  [none: it goes with it]")
@configures
@calls
def run(caller: Caller, code: Path, state: Path | None, **given: object) -> None:
    """Run a function in this terminal, on messages of a broker, until Ctrl-C. A debugger works. After each
    save the next message gets the new code; code that cannot be loaded is shown, and the old one goes on.
    Results go to --output-topic, else to the terminal. The subscription is the run's own and ends
    with it, unless --subscription names one."""
    from dataclasses import replace

    from magnetar.functions.local.local_plan import local_plan
    from magnetar.functions.local.local_run import run_locally

    with tempfile.TemporaryDirectory(prefix="magnetar-run-") as folder:
        document = config_document(code, given, creates=True)
        plan = local_plan(document, code, Path(folder), url=caller.service_url)
        keeps = given["subscription"] is not None or "subName" in document
        name = plan.subscription if keeps else f"{plan.subscription}-local"
        path = str(state) if state is not None else plan.state_file
        plan = replace(plan, subscription=name, state_file=path, token=caller.token())
        topics = ", ".join(each.topic for each in plan.inputs)
        click.echo(f"{code.name} reads {topics} by the subscription {name}; Ctrl-C ends it", err=True)
        with caller.client() as client:
            run_locally(plan, client, click.echo, keeps=keeps)


@click.command(
    epilog="Example: magnetar functions test exclamation.py --messages orders.jsonl --expect results.jsonl"
)
@click.argument("code", type=_FILE)
@click.option(
    "--messages", type=_FILE, required=True, help="File of messages, as `consume -o json` prints them."
)
@click.option("--expect", type=_FILE, help="File of expected results, as this command prints them.  [none]")
@configures
def test(code: Path, messages: Path, expect: Path | None, **given: object) -> None:
    """Call the function in CODE with recorded messages, without a broker, and print its results and state as
    lines of JSON; with --expect what differs. Time is that of the messages: waits take no time. The exit
    code is 1 when results differ, or without --expect when a call failed."""
    from magnetar.functions.errors import RecordingError
    from magnetar.functions.trial.findings import difference, expected_lines

    document = config_document(code, given, creates=True)
    try:
        wanted = None if expect is None else expected_lines(_lines(expect, "--expect"))
        plan, read = _plan_and_messages(document, code, messages)
    except RecordingError as error:
        raise click.UsageError(str(error)) from error
    found = _tried(plan, read)
    for note in found.notes:
        click.echo(note, err=True)
    if wanted is None:
        _print(found.lines)
        differs = bool(found.failures)
    else:
        lines = difference(wanted, found.lines)
        for line in lines:
            click.echo(line)
        differs = bool(lines)
    if differs or found.stopped:
        for failure in found.failures:
            click.echo(failure, err=True)
        raise click.exceptions.Exit(1)
    if wanted is not None:
        click.echo(f"{len(read)} messages: all {len(wanted)} results are as expected", err=True)


def _plan_and_messages(
    document: Mapping[str, object], code: Path, file: Path
) -> tuple[InstancePlan, Sequence[RecordedMessage]]:
    """Raises RecordingError."""
    from magnetar.base.names import TopicName
    from magnetar.functions.errors import RecordingError
    from magnetar.functions.local.local_plan import local_plan
    from magnetar.functions.trial.recorded import recorded

    inputs = document.get("inputs")
    first = str(inputs[0]) if isinstance(inputs, list) and len(inputs) == 1 else ""
    read = recorded(_lines(file, "--messages"), first)
    topics = sorted({str(message.topic.base) for message in read})
    plan = local_plan(dict(document), code, Path(tempfile.gettempdir()), inputs=topics)
    known = {str(TopicName.parse(each.topic).base) for each in plan.inputs if not each.is_pattern}
    if unknown := [topic for topic in topics if topic not in known]:
        raise RecordingError(f"{file} has messages of {unknown[0]}, which --input does not name")
    return plan, read


def _tried(plan: InstancePlan, messages: Sequence[RecordedMessage]) -> TrialFindings:
    from magnetar.functions.trial.trial import tried

    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as folder:
        return tried(plan, messages, Path(folder))


def _print(lines: Sequence[Line]) -> None:
    import json

    for line in lines:
        click.echo(json.dumps(line, ensure_ascii=False))


def _lines(file: Path, option: str) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}", param_hint=option) from error
