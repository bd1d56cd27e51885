"""Options of the processes that are members of a BookKeeper cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Final, TypeVar, cast

import click

_F = TypeVar("_F", bound=Callable[..., object])

FILE: Final = click.Path(path_type=Path)
METADATA: Final = click.option(
    "--metadata",
    required=True,
    help="Metadata service of the cluster: zk://HOST:PORT/ledgers or etcd://HOST:PORT/ledgers.",
)
_BOOKIE_ACCESS: Final = (
    click.option("--bookie-tls", is_flag=True, help="Connect to bookies over TLS."),
    click.option(
        "--bookie-tls-ca",
        type=FILE,
        help="PEM file of the authorities that sign the bookies' certificates.  [the machine's]",
    ),
    click.option(
        "--bookie-tls-certificate", type=FILE, help="PEM file of the client certificate for bookies.  [none]"
    ),
    click.option("--bookie-tls-key", type=FILE, help="PEM file of the certificate's key.  [none]"),
    click.option("--bookie-user", default="", help="User for the authentication at bookies (SASL).  [none]"),
    click.option("--bookie-password", type=FILE, help="File with the password of that user.  [none]"),
)
_LEVELS: Final = click.Choice(["debug", "info", "warning", "error"])


def member_options(*, session: str, told: str) -> Callable[[_F], _F]:
    """The options that all of them share, after their own. `session`: effect of the session's timeout,
    `told`: content of the ready file, both for the help."""
    options = (
        click.option(
            "--session-timeout",
            type=click.FloatRange(1),
            default=30.0,
            help=f"Seconds without contact after which {session}.  [30]",
        ),
        click.option("--log-level", type=_LEVELS, default="info", help="Least level of log records.  [info]"),
        click.option("--log-json", is_flag=True, help="Write each log record as a JSON object in one line."),
        click.option(
            "--ready-file",
            type=FILE,
            help=f"File for {told} as JSON, written when the process is ready.  [none]",
        ),
    )

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def bookie_access(command: _F) -> _F:
    """Adds options for bookies with authentication; the command gets `access`, fields of `LedgerSettings`."""

    @wraps(command)
    def checked(**options: object) -> object:
        access = {name: options.pop(name) for name in list(options) if name.startswith("bookie_")}
        if (access["bookie_tls_certificate"] is None) != (access["bookie_tls_key"] is None):
            raise click.UsageError("--bookie-tls-certificate and --bookie-tls-key go together")
        if bool(access["bookie_user"]) != (access["bookie_password"] is not None):
            raise click.UsageError("--bookie-user and --bookie-password go together")
        return command(access=access, **options)

    decorated: Callable[..., object] = checked
    for option in reversed(_BOOKIE_ACCESS):
        decorated = option(decorated)
    return cast(_F, decorated)
