"""`magnetar standalone`: broker, bookie, metadata and admin HTTP in one process."""

from __future__ import annotations

from pathlib import Path

import click

from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.serving import FILE, serve, serving_options


@click.command(epilog="Every setting, also those without an option: docs/configuration.md.")
@click.option("--data", "data_dir", type=FILE, help="Folder of everything kept.  [~/.local/share/magnetar]")
@click.option("--ephemeral", is_flag=True, default=None, help="Keep nothing; no fsync.")
@click.option("--bookies", type=click.IntRange(0), help="Keep messages on this many bookies beside it.  [0]")
@click.option(
    "--metadata", "metadata_url", help="Cluster of bookies to keep them on, zk://HOST:PORT/ledgers."
)
@serving_options("Host that clients are told to connect to.")
@end_at_once()
def standalone(config: Path | None, **overrides: object) -> int:
    """Run everything in one process, until Ctrl-C."""
    return serve(config, overrides, shares=False)
