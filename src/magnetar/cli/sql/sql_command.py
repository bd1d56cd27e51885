"""`magnetar sql`: one statement, or a shell."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from magnetar.cli.caller import Caller, calls_with_formats
from magnetar.cli.exit_codes import INTERRUPTED
from magnetar.cli.given import given_as
from magnetar.cli.sql.results import BINARY, FORMATS

if TYPE_CHECKING:
    from magnetar.cli.sql.running import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    statement: str | None
    memory: int
    spill: int
    spill_folder: str | None
    threads: int | None
    quiet: bool


@click.command(epilog='Example: magnetar sql "SELECT key, count(*) FROM orders GROUP BY key"')
@click.argument("statement", required=False)
@click.option("--memory", type=click.IntRange(min=64), default=1024, help="Memory of the engine, MB.  [1024]")
@click.option(
    "--spill",
    type=click.IntRange(min=0),
    default=20_480,
    help="Disk for what does not fit into the memory, MB.  [20480]",
)
@click.option(
    "--spill-folder",
    type=click.Path(exists=True, file_okay=False),
    help="Folder for it.  [the system's temporary folder]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the engine.  [one for each core]")
@click.option("--quiet", is_flag=True, help="Do not tell what was read.")
@calls_with_formats(FORMATS)
@given_as(_Given)
def sql(caller: Caller, given: _Given) -> int:
    """Ask topics with SQL: history and the newest messages as one table (docs/sql.md).

    STATEMENT is SELECT, INSERT INTO topic SELECT, DESCRIBE topic, SHOW TOPICS, or EXPLAIN. Without it the
    command is a shell, or runs the statements of standard input.
    Topics are tables, by the names tenant.namespace.topic or, in public/default, topic. The rows go to
    standard output, and what was read to standard error. Times are UTC.
    """
    from magnetar.history.history_worker import NoPandas

    # Nothing here uses pandas, which Arrow and the engine import where it is installed: it costs two seconds
    # of a processor.
    sys.meta_path.insert(0, NoPandas())
    from magnetar.sql.packages import check_packages

    check_packages()
    from magnetar.cli.sql.running import Runner
    from magnetar.sql.limits import QueryLimits

    limits = QueryLimits(
        memory_mb=given.memory,
        spill_mb=given.spill,
        spill_folder=given.spill_folder or "",
        threads=given.threads or 0,
    )
    if caller.output in BINARY and sys.stdout.isatty():
        raise click.UsageError(f"-o {caller.output} is not for terminals: send it to a file with `>`")
    runner = Runner(caller, limits, quiet=given.quiet)
    try:
        if given.statement is not None:
            runner.run(given.statement, caller.output)
        elif sys.stdin.isatty():
            _shell(runner, caller.output)
        else:
            for statement in _given_statements(sys.stdin.read(), caller.output):
                runner.run(statement, caller.output)
    except KeyboardInterrupt:
        _leave(runner, INTERRUPTED)
        raise
    _leave(runner, 0)
    return 0


def _leave(runner: Runner, code: int) -> None:
    """Ends the process without what Python does at its end, when the engine still computes: it would use
    what is gone by then."""
    if runner.abandoned:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _given_statements(text: str, output: str) -> list[str]:
    from magnetar.cli.sql.splitting import split

    statements, rest = split(text)
    statements += [rest] if rest.strip() else []
    if not statements:
        raise click.UsageError("standard input has no statement")
    if output in BINARY and len(statements) > 1:
        raise click.UsageError(f"-o {output} is for one statement, and there are {len(statements)}")
    return statements


def _shell(runner: Runner, output: str) -> None:
    from magnetar.cli.sql.completing import Completing
    from magnetar.cli.sql.shell import Shell

    Shell(runner, Completing(runner.topics, runner.columns), output).run()
