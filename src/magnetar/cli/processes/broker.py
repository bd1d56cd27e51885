"""`magnetar broker`: one of several brokers that share the topics of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.serving import FILE, serve, serving_options


@click.command(epilog="Example: magnetar broker --metadata zk://127.0.0.1:2181/ledgers --port 6651")
@click.option(
    "--metadata",
    "metadata_url",
    required=True,
    help="Metadata service of the cluster: zk://HOST:PORT/ledgers or etcd://HOST:PORT/ledgers.",
)
@click.option("--cluster", help="Name of the cluster.  [standalone]")
@click.option(
    "--data", "data_dir", type=FILE, help="Folder for decisions of `magnetar storage` on this broker.  [none]"
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="Broker processes, which use as many cores and share the ports.  [1]",
)
@serving_options("Host that clients and other brokers are told to connect to.  [as --host]")
@end_at_once()
def broker(config: Path | None, **overrides: object) -> int:
    """Run one of several brokers that share the topics of a cluster, until Ctrl-C."""
    return serve(config, overrides, shares=True)
