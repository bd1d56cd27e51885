"""Writes the reference part of docs/cli.md from the commands themselves; a test keeps the two in step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from magnetar.cli.caller import calls
from magnetar.cli.main import magnetar
from magnetar.cli.table import COMMANDS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
GUIDES = {
    "standalone": "configuration.md",
    "tokens": "security.md",
    "pipeline": "pipelines.md",
    "lake": "lake.md",
}
"""Commands that have a guide of their own."""
MARK = "<!-- Below this line tools/cli_reference.py writes. -->\n"


@click.command()
@calls
def _shared(caller: object) -> None:
    """Has the options of all that call a broker."""


def reference() -> str:
    """The part below the mark."""
    context = click.Context(magnetar)
    lines = ["", "## Commands", "", "With every command that calls a broker:", ""]
    shared = {each.name or "" for each in _shared.params}
    lines += _options(_shared, set())
    for name in magnetar.list_commands(context):
        lines += ["", f"### {name}", ""]
        if name in GUIDES:
            lines.append(f"{COMMANDS[name].help} See [{GUIDES[name]}]({GUIDES[name]}).")
            continue
        command = magnetar.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                lines += _described(name, command, shared)
            else:
                lines += [command.help or "", ""]
            lines += [line for each in _leaves(command, name) for line in _described(*each, shared)]
        else:
            lines += _described(name, command, shared)
    return "\n".join(lines) + "\n"


def _leaves(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.commands:
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{words} {name}")
        else:
            yield f"{words} {name}", command


def _described(words: str, command: click.Command, shared: set[str]) -> list[str]:
    with click.Context(command, info_name=words) as context:
        arguments = [
            each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)
        ]
    text = " ".join((command.help or "").split())
    lines = [f"- `{' '.join(('magnetar', words, *arguments))}`: {text}"]
    if command.epilog and command.epilog.startswith("Example: "):
        lines.append(f"  `{command.epilog.removeprefix('Example: ')}`")
    return lines + [f"  {line}" for line in _options(command, shared)]


def _options(command: click.Command, without: set[str]) -> list[str]:
    lines = []
    for each in command.params:
        if isinstance(each, click.Option) and each.name not in without:
            names = ", ".join(each.opts)
            lines.append(f"- `{names}` {' '.join((each.help or '').split())}".rstrip())
    return lines


def page(current: str) -> str:
    """The page with the reference as it must be."""
    return current.partition(MARK)[0] + MARK + reference()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
