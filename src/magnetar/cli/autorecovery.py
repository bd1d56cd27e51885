"""`magnetar autorecovery`: makes copies anew that lost bookies had (docs/auto-recovery.md)."""

from __future__ import annotations

from pathlib import Path

import click

from magnetar.cli.member_options import METADATA, member_options

_MIB = 1 << 20


@click.command(epilog="Example: magnetar autorecovery --metadata zk://127.0.0.1:2181/ledgers")
@METADATA
@click.option("--id", "node_id", help="Name of this node in votes and locks.  [HOST-PID]")
@click.option(
    "--lost-bookie-delay",
    type=click.IntRange(0),
    default=0,
    help="Seconds to wait for one lost bookie, where the cluster has none set.  [0]",
)
@click.option(
    "--open-ledger-grace",
    type=click.FloatRange(0),
    default=30.0,
    help="Seconds that writers have before their ledgers are closed.  [30]",
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
    help="Share of entries that a check reads, besides first and last ones.  [0]",
)
@click.option("--rate", type=click.FloatRange(0.01), help="MiB copied in a second at most.  [no limit]")
@member_options(session="another node takes over", told="id and process id")
def autorecovery(
    metadata: str,
    node_id: str | None,
    lost_bookie_delay: int,
    open_ledger_grace: float,
    check_interval: float,
    check_share: float,
    rate: float | None,
    session_timeout: float,
    log_level: str,
    log_json: bool,
    ready_file: Path | None,
) -> int:
    """Make copies anew that lost bookies had, until Ctrl-C. Any number of nodes share the work."""
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.observability import logs
    from magnetar.server.autorecovery import AutoRecoveryConfig, run

    logs.configure(level=log_level, as_json=log_json)
    return run(
        AutoRecoveryConfig(
            metadata=metadata,
            node_id=node_id,
            lost_bookie_delay_s=lost_bookie_delay,
            open_ledger_grace_s=open_ledger_grace,
            check_all_s=check_interval,
            check_share=check_share,
            bytes_per_s=None if rate is None else rate * _MIB,
            session_timeout_ms=int(session_timeout * 1_000),
            ready_file=ready_file,
        )
    )
