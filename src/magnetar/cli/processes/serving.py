"""Options of `magnetar standalone` and `magnetar broker`, and their start."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import click

_log = logging.getLogger("magnetar.server")

_Command = TypeVar("_Command", bound=Callable[..., object])

FILE: Final = click.Path(path_type=Path)
_PORT: Final = click.IntRange(0, 65535)


def serving_options(advertised: str) -> Callable[[_Command], _Command]:
    """Options of a process that serves clients. `advertised`: help of `--advertised-address`."""
    options = (
        click.option(
            "--port", "broker_port", type=_PORT, help="Port of the Pulsar protocol, 0: a free one.  [6650]"
        ),
        click.option("--http-port", type=_PORT, help="Port of admin and metrics, 0: a free one.  [8080]"),
        click.option("--host", help="Address to listen on.  [127.0.0.1]"),
        click.option("--advertised-address", help=advertised),
        click.option(
            "--insecure",
            is_flag=True,
            default=None,
            help="Let clients of other machines do everything without authentication.",
        ),
        click.option(
            "--config",
            type=FILE,
            envvar="MAGNETAR_CONFIG",
            help="File of settings: TOML, or Pulsar's *.conf.  [none]",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="Least level of log records.  [info]",
        ),
        click.option(
            "--log-json",
            is_flag=True,
            default=None,
            help="Write each log record as a JSON object in one line.",
        ),
        click.option(
            "--ready-file",
            type=FILE,
            help="File for URLs and process id as JSON, written when the process is ready.  [none]",
        ),
    )

    def with_options(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def serve(config: Path | None, overrides: Mapping[str, object], *, shares: bool) -> int:
    """Runs a server until a signal ends it; returns the exit code. `shares`: whether it is one of several
    brokers of a cluster."""
    # What is imported stays: collecting among it takes a tenth of the start. `Heap.settle` starts it again.
    gc.disable()
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.server.settings.loading import in_cluster, load

    loaded = load(overrides, file=config)
    settings = loaded.config
    if shares:
        settings = in_cluster(settings)
    from magnetar.observability import logs
    from magnetar.server.standalone import run

    logs.configure(
        level=settings.log_level,
        as_json=settings.log_json,
        per_minute_max=settings.log_event_records_per_minute,
    )
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    for note in loaded.notes:
        _log.info("%s", note)
    for detail in loaded.details:
        _log.debug("%s", detail)
    if settings.processes > 1:
        from magnetar.server.processes.supervisor import run as supervise

        return supervise(settings, config, overrides, storage=not shares)
    return run(settings, shares=shares)
