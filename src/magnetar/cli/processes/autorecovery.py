"""`magnetar autorecovery`: replaces copies that lost bookies held (docs/auto-recovery.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from magnetar.cli.given import given_as
from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.member_options import METADATA, bookie_access, member_options

_MIB = 1 << 20


class _RunsUnlessTold(click.Group):
    """A group that runs its command `run` when no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunsUnlessTold)
def autorecovery() -> None:
    """Replace the copies of lost bookies, and decommission a bookie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    metadata: str
    node_id: str | None
    lost_bookie_delay: int
    open_ledger_grace: float
    check_interval: float
    check_share: float
    replica_check_interval: float
    placement_check_interval: float
    racks_min: int
    racks_node: str
    rate: float | None
    access: dict[str, Any]
    http_port: int | None
    http_host: str
    http_changes: bool
    session_timeout: float
    log_level: str
    log_json: bool
    ready_file: Path | None


@autorecovery.command(epilog="Example: magnetar autorecovery run --metadata zk://127.0.0.1:2181/ledgers")
@METADATA
@click.option("--id", "node_id", help="Name of this node in votes and locks.  [HOST-PID]")
@click.option(
    "--lost-bookie-delay",
    type=click.IntRange(0),
    default=0,
    help="Seconds to wait for a single lost bookie, unless the cluster has a value.  [0]",
)
@click.option(
    "--open-ledger-grace",
    type=click.FloatRange(0),
    default=30.0,
    help="Seconds that the writer of an open ledger has before the ledger is closed.  [30]",
)
@click.option(
    "--check-interval",
    type=click.FloatRange(0),
    default=604_800.0,
    help="Seconds between two checks of all ledgers, 0: never.  [604800]",
)
@click.option(
    "--check-share",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Share of entries, 0 to 1, that a check reads besides the first and last of each fragment.  [0]",
)
@click.option(
    "--replica-check-interval",
    type=click.FloatRange(0),
    default=0.0,
    help="Seconds between two checks of every entry by the bookies' lists, 0: never.  [0]",
)
@click.option(
    "--placement-check-interval",
    type=click.FloatRange(0),
    default=0.0,
    help="Seconds between two checks of racks, which move copies from too few racks. 0: never.  [0]",
)
@click.option(
    "--racks-min",
    type=click.IntRange(1),
    default=2,
    help="Number of racks that the copies of an entry should be in.  [2]",
)
@click.option("--racks-node", default="/bookies", help="Metadata node with the racks of bookies.  [/bookies]")
@click.option(
    "--rate", type=click.FloatRange(0.01), help="Largest rate of copying, in MiB per second.  [no limit]"
)
@bookie_access
@click.option("--http-port", type=click.IntRange(0, 65535), help="Port of HTTP admin and metrics.  [none]")
@click.option("--http-host", default="127.0.0.1", help="Address of that port.  [127.0.0.1]")
@click.option(
    "--http-changes",
    is_flag=True,
    help="Take changes on that port, from every caller, even if bookies get TLS or credentials.",
)
@member_options(session="another node takes over", told="id, process id and HTTP port")
@end_at_once()
@given_as(_Given)
def run(given: _Given) -> int:
    """Replace the copies of lost bookies, until Ctrl-C. Any number of nodes share the work.

    The word `run` may be left out.
    """
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.observability import logs
    from magnetar.server.bookies.autorecovery import AutoRecoveryConfig
    from magnetar.server.bookies.autorecovery import run as run_node
    from magnetar.server.settings.ledger_settings import LedgerSettings

    logs.configure(level=given.log_level, as_json=given.log_json)
    return run_node(
        AutoRecoveryConfig(
            metadata=given.metadata,
            node_id=given.node_id,
            lost_bookie_delay_s=given.lost_bookie_delay,
            open_ledger_grace_s=given.open_ledger_grace,
            check_all_s=given.check_interval,
            check_share=given.check_share,
            check_replicas_s=given.replica_check_interval,
            check_placement_s=given.placement_check_interval,
            racks_min=given.racks_min,
            racks_path=given.racks_node,
            bytes_per_s=None if given.rate is None else given.rate * _MIB,
            session_timeout_ms=int(given.session_timeout * 1_000),
            ready_file=given.ready_file,
            bookies=LedgerSettings(**given.access),
            http_port=given.http_port,
            http_host=given.http_host,
            http_changes=given.http_changes,
        )
    )


@autorecovery.command(
    epilog="Example: magnetar autorecovery decommission 10.0.0.7:3181 --metadata zk://127.0.0.1:2181/ledgers"
)
@click.argument("bookie_id")
@METADATA
@click.option("--timeout", type=click.FloatRange(0.1), help="Seconds to wait at most.  [no limit]")
def decommission(bookie_id: str, metadata: str, timeout: float | None) -> int:
    """Remove a stopped bookie from the cluster: wait until no ledger names it, then delete its cookie.

    The nodes of auto-recovery do the copying. You may interrupt the command and run it again.
    """
    from magnetar.server.bookies.decommission import DecommissionConfig
    from magnetar.server.bookies.decommission import run as run_decommission

    told: list[int] = []

    def tell(left: int) -> None:
        if left and told[-1:] != [left]:
            click.echo(f"{left} ledgers left")
        told.append(left)

    def warn(text: str) -> None:
        click.echo(f"magnetar: {text}", err=True)

    run_decommission(
        DecommissionConfig(metadata=metadata, bookie_id=bookie_id, timeout_s=timeout), tell, warn
    )
    click.echo(f"no ledger names {bookie_id} any more, and its cookie is deleted")
    return 0
