"""`magnetar bookie`: one bookie of a cluster, for ledger clients of any kind (docs/bookkeeper.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from magnetar.cli.given import given_as
from magnetar.cli.processes.interrupts import end_at_once
from magnetar.cli.processes.member_options import FILE, METADATA, member_options


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    metadata: str
    data: tuple[Path, ...]
    port: int
    host: str
    advertised_address: str | None
    bookie_id: str | None
    http_port: int | None
    http_host: str
    http_changes: bool
    tls_certificate: Path | None
    tls_key: Path | None
    tls_trust_certs: Path | None
    tls_required: bool
    authorized_roles: tuple[str, ...]
    users: Path | None
    disk_usage_threshold: float
    sort_after_reads: int
    max_frame_bytes: int
    initialize: bool
    collect_interval: float
    session_timeout: float
    log_level: str
    log_json: bool
    ready_file: Path | None


@click.command(epilog="Example: magnetar bookie --metadata zk://127.0.0.1:2181/ledgers --data /srv/bookie")
@METADATA
@click.option(
    "--data",
    required=True,
    multiple=True,
    type=FILE,
    help="Folder of all data; repeat it, one for each disk.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=3181, help="Port to listen on; 0: a free one.  [3181]"
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.  [127.0.0.1]")
@click.option("--advertised-address", help="Host that clients are told to connect to.  [as --host]")
@click.option("--bookie-id", help="Name in the cluster, which can never change.  [ADVERTISED-ADDRESS:PORT]")
@click.option("--http-port", type=click.IntRange(0, 65535), help="Port of HTTP admin and metrics.  [none]")
@click.option("--http-host", default="127.0.0.1", help="Address of that port.  [127.0.0.1]")
@click.option(
    "--http-changes",
    is_flag=True,
    help="Take changes on that port, from every caller, even if clients must have TLS or credentials.",
)
@click.option(
    "--tls-certificate", type=FILE, help="PEM file of the certificate, for clients that ask for TLS.  [none]"
)
@click.option("--tls-key", type=FILE, help="PEM file of the certificate's key.  [none]")
@click.option(
    "--tls-trust-certs",
    type=FILE,
    help="PEM file of the authorities that sign clients' certificates.  [none]",
)
@click.option("--tls-required", is_flag=True, help="Refuse clients without TLS.")
@click.option(
    "--authorized-role",
    "authorized_roles",
    multiple=True,
    help="Role of a client's certificate that is accepted; may be repeated.  [no role is needed]",
)
@click.option(
    "--users",
    type=FILE,
    help="File of USER:PASSWORD lines; clients must authenticate as one of the users (SASL).  [none]",
)
@click.option(
    "--disk-usage-threshold",
    type=click.FloatRange(0.1, 1.0),
    default=0.95,
    help="Used share of the disk, 0.1 to 1, at which it counts as full.  [0.95]",
)
@click.option(
    "--sort-after-reads",
    type=click.IntRange(0),
    default=0,
    help="Reads of scattered ledgers after which a segment is rewritten, sorted by ledger; 0: never.  [0]",
)
@click.option(
    "--max-frame-bytes",
    type=click.IntRange(1 << 20, 256 << 20),
    default=(5 << 20) + (16 << 10),
    help="Largest request in bytes: the largest message plus 16 KiB.  [5259264]",
)
@click.option("--initialize", is_flag=True, help="Create the metadata of a new cluster if there is none.")
@click.option(
    "--collect-interval",
    type=click.FloatRange(1),
    default=600.0,
    help="Seconds between two searches for deleted ledgers.  [600]",
)
@member_options(session="the cluster considers the bookie dead", told="id, port and process id")
@end_at_once()
@given_as(_Given)
def bookie(given: _Given) -> int:
    """Run one bookie of a BookKeeper cluster, until Ctrl-C."""
    # Imported here, so that `magnetar --help` need not wait for the server's rooms.
    from magnetar.observability import logs
    from magnetar.server.bookies.bookie import BookieConfig, run
    from magnetar.server.bookies.bookie_security import BookieSecurity

    logs.configure(level=given.log_level, as_json=given.log_json)
    return run(
        BookieConfig(
            metadata=given.metadata,
            data=given.data[0],
            more_data=given.data[1:],
            host=given.host,
            port=given.port,
            advertised=given.advertised_address,
            bookie_id=given.bookie_id,
            collect_interval_s=given.collect_interval,
            session_timeout_s=given.session_timeout,
            full_share=given.disk_usage_threshold,
            sort_after_reads=given.sort_after_reads,
            packet_bytes_max=given.max_frame_bytes,
            initialize=given.initialize,
            http_port=given.http_port,
            http_host=given.http_host,
            http_changes=given.http_changes,
            security=BookieSecurity(
                tls_certificate=given.tls_certificate,
                tls_key=given.tls_key,
                tls_trust_certs=given.tls_trust_certs,
                tls_required=given.tls_required,
                authorized_roles=given.authorized_roles,
                users=given.users,
            ),
            ready_file=given.ready_file,
        )
    )
