"""`magnetar proxy`: clients reach the brokers of a cluster through it (docs/proxy.md)."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.serving import serving_options

_log = logging.getLogger("magnetar.server")


@click.command(epilog="Example: magnetar proxy --metadata zk://127.0.0.1:2181/ledgers --port 6660")
@click.option(
    "--metadata",
    "metadata_url",
    help="Metadata service that names the brokers: zk://HOST:PORT or etcd://HOST:PORT.  [none]",
)
@click.option("--cluster", help="Name of the cluster.  [standalone]")
@click.option("--brokers", help="Brokers, if no metadata service names them: pulsar://HOST:PORT,...  [none]")
@click.option("--brokers-http", help="Admin APIs of these brokers: http://HOST:PORT,...  [none]")
@serving_options("Host of this proxy, told to clients.  [that of --host]")
@end_at_once()
def proxy(config: Path | None, **overrides: object) -> int:
    """Run a proxy before the brokers of a cluster, until Ctrl-C."""
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.observability import logs
    from magnetar.server.proxy_process import run
    from magnetar.server.settings.proxy_loading import load_proxy

    loaded, settings = load_proxy(overrides, file=config)
    logs.configure(
        level=loaded.config.log_level,
        as_json=loaded.config.log_json,
        per_minute_max=loaded.config.log_event_records_per_minute,
    )
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    for note in loaded.notes:
        _log.info("%s", note)
    return run(loaded.config, settings)
