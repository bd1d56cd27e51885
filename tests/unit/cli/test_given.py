"""Commands with many options get them as one value, which has a field for each."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

import click
import pytest

from magnetar.cli.caller import _OPTIONS

COMMANDS = [
    ("messages.search", "search"), ("messages.get", "get"), ("messages.replay", "replay"),
    ("messages.consume", "consume"), ("messages.produce", "produce"), ("security.secure", "init"),
    ("storage.lake", "maintain"), ("pipeline", "run"),
    ("processes.bookie", "bookie"),
]  # fmt: skip


def of_callers() -> set[str]:
    """Options that `calls` takes for itself."""

    def nothing() -> None: ...

    for option in _OPTIONS:
        option(nothing)
    return {str(each.name) for each in nothing.__click_params__}  # type: ignore[attr-defined]  # click's own


@pytest.mark.parametrize(("module", "name"), COMMANDS)
def test_each_option_has_its_field(module: str, name: str) -> None:
    found = import_module(f"magnetar.cli.{module}")
    command: click.Command = getattr(found, name)
    declared = {str(each.name) for each in command.params if each.expose_value}
    given = {each.name for each in fields(found._Given)}
    assert given <= declared
    assert declared - given in (set(), of_callers())
