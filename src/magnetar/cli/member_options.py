"""Options of the processes that are members of a BookKeeper cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

FILE: Final = click.Path(path_type=Path)
METADATA: Final = click.option(
    "--metadata",
    required=True,
    help="Where the cluster is: zk://HOST:PORT/ledgers, etcd://HOST:PORT/ledgers.",
)
_LEVELS: Final = click.Choice(["debug", "info", "warning", "error"])


def member_options(*, session: str, told: str) -> Callable[[_F], _F]:
    """What every one of them has, behind its own options. `session` says what its time-out, in seconds, is
    for, `told` what its ready file holds."""
    options = (
        click.option(
            "--session-timeout",
            type=click.FloatRange(1),
            default=30.0,
            help=f"Seconds until {session}.  [30]",
        ),
        click.option("--log-level", type=_LEVELS, default="info", help="[info]"),
        click.option("--log-json", is_flag=True, help="Log JSON objects, one a line."),
        click.option("--ready-file", type=FILE, help=f"Write {told} there, as JSON, once ready."),
    )

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
