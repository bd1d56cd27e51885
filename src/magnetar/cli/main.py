"""The group of commands, and the boundary where errors become a line and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from magnetar import __version__, twin
from magnetar.base.errors import MagnetarError
from magnetar.cli.lazy import LazyGroup
from magnetar.cli.table import COMMANDS


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Settings may also come from the environment (MAGNETAR_*) and from a file (--config).",
)
@click.version_option(f"{__version__} ({twin.description()})", prog_name="magnetar")
def magnetar() -> None:
    """Event streaming, compatible with Apache Pulsar."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line (default: the process's own) and ends the process."""
    try:
        code = magnetar.main(args=arguments, prog_name="magnetar", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except MagnetarError as error:
        print(f"magnetar: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
