"""A group of commands that imports a command when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from magnetar.cli.table import Command


class LazyGroup(click.Group):
    """A group whose commands come from a table; a command's module is imported when it is called."""

    def __init__(self, *args: Any, table: Mapping[str, Command], **options: Any) -> None:
        """`table`: commands by name, in the order of the help."""
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self._table.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row.place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click; the error for an unknown command suggests the nearest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # A module that only a mistake needs.
            import difflib

            close = difflib.get_close_matches(args[0], self._table, n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes from the table, without imports, because a shell calls it at every key."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=row.help)
            for name, row in self._table.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Formats help from the table, without imports."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in self._table.items()])
