"""`magnetar standalone`: broker, bookie, metadata and admin HTTP in one process."""

from __future__ import annotations

from pathlib import Path

import click

from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.serving import FILE, serve, serving_options


@click.command(epilog="Every setting, also those without an option: docs/configuration.md.")
@click.option("--data", "data_dir", type=FILE, help="Folder of all data.  [~/.local/share/magnetar]")
@click.option(
    "--ephemeral", is_flag=True, default=None, help="Keep nothing after the process, and never sync."
)
@click.option(
    "--bookies",
    type=click.IntRange(0),
    help="Number of bookies to start here for the messages; 0: the broker stores them.  [0]",
)
@click.option(
    "--metadata",
    "metadata_url",
    help="Metadata service of a cluster of bookies for the messages: zk://HOST:PORT/ledgers"
    " or etcd://HOST:PORT/ledgers.  [none]",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="Broker processes, which use as many cores and share the ports.  [1]",
)
@serving_options("Host that clients are told to connect to.  [as --host]")
@end_at_once()
def standalone(config: Path | None, **overrides: object) -> int:
    """Run everything in one process, until Ctrl-C."""
    return serve(config, overrides, shares=False)
