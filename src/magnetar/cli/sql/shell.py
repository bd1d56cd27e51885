"""The shell of `magnetar sql`.

Python's own `readline` edits lines, keeps the history and completes. It is there wherever Python is built for
terminals, needs no package, and starts in a millisecond. A statement may have many lines and ends with a
semicolon.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import click

from magnetar.base.errors import MagnetarError
from magnetar.cli.sql.completing import Completing
from magnetar.cli.sql.results import BINARY, FORMATS
from magnetar.cli.sql.splitting import split

if TYPE_CHECKING:
    from magnetar.cli.sql.running import Runner

PROMPT: Final = "magnetar> "
MORE: Final = "     ...> "
HELP: Final = """\
SELECT … FROM topic;      a query; it ends with a semicolon and may have many lines
SHOW TOPICS [FROM t.n];   the topics of a namespace
DESCRIBE topic;           its columns
EXPLAIN SELECT …;         how the engine does it, and what it would read
\\o table|json|csv         format of results
\\q                        ends the shell, as Ctrl-D does
Ctrl-C ends a running query, or drops what is typed. Tab completes words, topics and columns."""
_HISTORY_MAX: Final = 2000


def history_file() -> Path:
    """Where the statements are kept, in the user's folder for such files."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "magnetar" / "sql_history"


class Shell:
    """Reads statements from a terminal and runs them."""

    def __init__(self, runner: Runner, completing: Completing, output: str) -> None:
        self._runner = runner
        self._completing = completing
        self._output = output
        self._typed = ""

    def run(self) -> None:
        """Runs until the user ends it."""
        readline = _readline()
        if readline is not None:
            self._prepare(readline)
        click.echo("Topics are tables; \\? shows help, \\q ends.", err=True)
        try:
            while self._line():
                continue
        finally:
            if readline is not None:
                _keep_history(readline)

    def _line(self) -> bool:
        """Takes one line; False: the user ends the shell."""
        try:
            line = input(MORE if self._typed.strip() else PROMPT)
        except KeyboardInterrupt:
            self._typed = ""
            click.echo()
            return True
        except EOFError:
            click.echo()
            return False
        if not self._typed.strip() and (word := line.strip().rstrip(";")).lower() in ("\\q", "exit", "quit"):
            return False
        if not self._typed.strip() and word.startswith("\\"):
            self._command(word)
            return True
        statements, self._typed = split(f"{self._typed}{line}\n")
        for statement in statements:
            if not self._run(statement):
                self._typed = ""
                break
        return True

    def _command(self, word: str) -> None:
        name, _, argument = word.partition(" ")
        if name == "\\o" and argument.strip() in FORMATS and argument.strip() not in BINARY:
            self._output = argument.strip()
        else:
            click.echo(HELP, err=True)

    def _run(self, statement: str) -> bool:
        """Runs a statement; False when it failed or was interrupted."""
        try:
            self._runner.run(statement, self._output)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            return False
        except (MagnetarError, click.ClickException) as error:
            click.echo(f"magnetar: {' '.join(str(error).split())}", err=True)
            return False
        if statement.lower().startswith("show"):
            self._completing.forget()
        return True

    # ------------------------------------------------------------ readline

    def _prepare(self, readline: ModuleType) -> None:
        file = history_file()
        if file.exists():
            readline.read_history_file(file)
        readline.set_history_length(_HISTORY_MAX)
        readline.set_completer_delims(" \t\n,()=<>+*%;")
        found: list[str] = []

        def complete(prefix: str, state: int) -> str | None:
            nonlocal found
            if state == 0:
                found = self._completing.words(f"{self._typed} {readline.get_line_buffer()}", prefix)
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")


def _readline() -> ModuleType | None:
    """Python's module; None where it is not built in."""
    if not sys.stdin.isatty():
        return None
    try:
        import readline
    except ImportError:
        return None
    return readline


def _keep_history(readline: ModuleType) -> None:
    file = history_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    # Statements may have what only their author may see.
    file.touch(mode=0o600)
    readline.write_history_file(file)
