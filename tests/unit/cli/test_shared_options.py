"""Options of commands and the options that all callers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from magnetar.cli.main import magnetar
from magnetar.cli.table import COMMANDS


def commands_of(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_of(below, f"{path} {name}")


def test_no_command_has_two_parameters_of_one_name() -> None:
    """The second took the place of the first: `offload claim` failed with a TypeError when called."""
    twice = {}
    for name in COMMANDS:
        command = magnetar.get_command(click.Context(magnetar), name)
        assert command is not None
        for path, each in commands_of(command, name):
            names = Counter(parameter.name for parameter in each.params)
            if found := [text for text, count in names.items() if count > 1]:
                twice[path] = found
    assert twice == {}
