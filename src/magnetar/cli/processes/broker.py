"""`magnetar broker`: one of several brokers of a cluster (docs/cluster.md)."""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from pathlib import Path

import click

from magnetar.cli.processes.interrupts import end_at_once

_log = logging.getLogger("magnetar.server")

_PORT = click.IntRange(0, 65535)
_FILE = click.Path(path_type=Path)


@click.command(epilog="Example: magnetar broker --metadata zk://127.0.0.1:2181/ledgers --port 6651")
@click.option(
    "--metadata",
    "metadata_url",
    required=True,
    help="Metadata service of the cluster: zk://HOST:PORT/ledgers or etcd://HOST:PORT/ledgers.",
)
@click.option("--cluster", help="Name of the cluster.  [standalone]")
@click.option("--data", "data_dir", type=_FILE, help="Folder for what operators decided here.  [none]")
@click.option("--port", "broker_port", type=_PORT, help="Port of the Pulsar protocol, 0: a free one.  [6650]")
@click.option("--http-port", type=_PORT, help="Port of admin and metrics, 0: a free one.  [8080]")
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--advertised-address", help="Host that clients and other brokers are told to connect to.")
@click.option("--insecure", is_flag=True, default=None, help="Let other machines do everything.")
@click.option("--config", type=_FILE, envvar="MAGNETAR_CONFIG", help="Settings: TOML, or Pulsar's *.conf.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[info]")
@click.option("--log-json", is_flag=True, default=None, help="Log JSON objects, one a line.")
@click.option("--ready-file", type=_FILE, help="Write URLs and process id there, as JSON, once ready.")
@end_at_once()
def broker(config: Path | None, **overrides: object) -> int:
    """Run one of several brokers that share the topics of a cluster, until Ctrl-C."""
    # What is imported stays: collecting among it takes a tenth of the start. `Heap.settle` starts it again.
    gc.disable()
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.server.settings.config import default_data_dir
    from magnetar.server.settings.loading import load

    loaded = load(overrides, file=config)
    settings = loaded.config
    if settings.data_dir == default_data_dir():
        # That is a standalone server's; nothing that a broker of a cluster needs is in a folder.
        settings = replace(settings, data_dir=None)
    from magnetar.observability import logs
    from magnetar.server.standalone import run

    logs.configure(
        level=settings.log_level,
        as_json=settings.log_json,
        per_minute_max=settings.log_event_records_per_minute,
    )
    for note in loaded.notes:
        _log.info("%s", note)
    for detail in loaded.details:
        _log.debug("%s", detail)
    return run(settings, shares=True)
