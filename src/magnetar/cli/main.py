"""The group of commands, and the boundary where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from magnetar import __version__, twin
from magnetar.base.errors import MagnetarError
from magnetar.cli.exit_codes import FAILED, INTERRUPTED, code_of
from magnetar.cli.lazy import LazyGroup
from magnetar.cli.table import COMMANDS


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every command has --help with an example; docs/cli.md has them all, and what exit codes mean.",
)
@click.version_option(f"{__version__} ({twin.description()})", prog_name="magnetar")
def magnetar() -> None:
    """Event streaming, compatible with Apache Pulsar."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line (default: the process's own) and ends the process.

    Refuses a Python without assertions: they stop what would otherwise write damaged state.
    """
    if not __debug__:
        print(
            "magnetar: this Python runs without assertions, which guard what is stored;"
            " start it without -O and without PYTHONOPTIMIZE",
            file=sys.stderr,
        )
        sys.exit(FAILED)
    try:
        code = magnetar.main(args=arguments, prog_name="magnetar", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except MagnetarError as error:
        print(f"magnetar: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(code_of(error))
    except BrokenPipeError:
        # The reader of the output closed it. The rest of the buffer is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except OSError as error:
        if error.filename is None:
            raise
        # A file system that is read-only or full, a folder of another user: the cause is not in the program.
        print(f"magnetar: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(FAILED)
    sys.exit(code if isinstance(code, int) else 0)
