"""What holds for every command: help, an example that can be written so, options in their places."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from cli_reference import GUIDES

from magnetar.cli.main import magnetar as root


def leaves(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            assert command.help, words
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(leaves(root, ()))
NAMES = [" ".join(words) for words in COMMANDS if words[0] not in GUIDES]


def example_of(name: str) -> list[str]:
    epilog = COMMANDS[tuple(name.split())].epilog or ""
    assert epilog.startswith("Example: magnetar "), f"{name} has no example"
    return shlex.split(epilog.removeprefix("Example: magnetar "))


@pytest.mark.parametrize("name", NAMES)
def test_help_has_a_sentence_and_an_example_that_parses(name: str) -> None:
    words = name.split()
    command = COMMANDS[tuple(words)]
    assert command.help
    assert command.help.rstrip().endswith(".")
    example = example_of(name)
    assert example[: len(words)] == words
    with command.make_context(name, example[len(words) :]):
        pass


@pytest.mark.parametrize("name", NAMES)
def test_what_asks_can_be_told_not_to(name: str) -> None:
    options = {option for each in COMMANDS[tuple(name.split())].params for option in each.opts}
    assert ("--yes" in options) <= ("--dry-run" in options), "what cannot be undone can be tried"


OPTIONS = [
    (" ".join(words), option)
    for words, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option)
]
HELP = re.compile(r"(?P<effect>[A-Za-z][^\n]+\.)(?:  \[(?P<default>.+)\])?")


def test_options_say_their_effect_and_default() -> None:
    wrong = []
    for name, option in OPTIONS:
        told = HELP.fullmatch(" ".join((option.help or "").split()).replace(" [", "  ["))
        if told is None or len(told["effect"].split()) < 3:
            wrong.append(f"{name} {option.opts[0]}: no effect: {option.help}")
        elif not option.is_flag and not option.required and told["default"] is None:
            wrong.append(f"{name} {option.opts[0]}: no default: {option.help}")
        elif option.is_flag or not isinstance(option.default, int | float):
            continue
        elif f"{option.default:.10g}" != told["default"]:
            wrong.append(f"{name} {option.opts[0]}: the default is {option.default}: {option.help}")
    assert wrong == []
