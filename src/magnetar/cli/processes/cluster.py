"""`magnetar cluster`: the brokers that share the topics of a cluster (docs/cluster.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from magnetar.cli.output import FORMATS, show
from magnetar.cli.processes.member_options import METADATA

if TYPE_CHECKING:
    from magnetar.server.cluster_metadata import ClusterMetadata

_T = TypeVar("_T")

_CLUSTER: Final = click.option("--cluster", default="standalone", help="Name of the cluster.  [standalone]")
_OUTPUT: Final = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)
_COLUMNS: Final = (
    "broker",
    "state",
    "leader",
    "url",
    "version",
    "bundles",
    "topics",
    "producers",
    "consumers",
    "messages_in_per_s",
    "messages_out_per_s",
    "cpu_percent",
    "waited_percent",
    "metadata_outages",
)


@click.group()
def cluster() -> None:
    """Brokers that share the topics of a cluster (docs/cluster.md)."""


def _run(metadata: str, name: str, work: Callable[[ClusterMetadata], Awaitable[_T]]) -> _T:
    from magnetar.runtime import loop
    from magnetar.server.cluster_metadata import ClusterMetadata

    async def opened() -> _T:
        async with ClusterMetadata.opened(metadata, name) as found:
            return await work(found)

    return loop.run(opened())


@cluster.command(epilog="Example: magnetar cluster init --metadata zk://127.0.0.1:2181/ledgers")
@METADATA
@_CLUSTER
def init(metadata: str, cluster: str) -> None:
    """Make the metadata of a new cluster; what is there already stays."""
    _run(metadata, cluster, lambda found: found.initialize())
    click.echo(f"cluster {cluster} is ready: start bookies, then brokers")


@cluster.command(epilog="Example: magnetar cluster status --metadata zk://127.0.0.1:2181/ledgers")
@METADATA
@_CLUSTER
@click.option("--bundles", is_flag=True, help="Show which broker serves which bundle.")
@click.option("--moves", is_flag=True, help="Show the last bundles that were moved for their load.")
@_OUTPUT
def status(metadata: str, cluster: str, bundles: bool, moves: bool, output: str) -> None:
    """Show the brokers of a cluster, what they have to do, and which one leads."""
    if moves:
        last = _run(metadata, cluster, lambda found: found.last_moves())
        show(last, output, columns=("at", "bundle", "from", "to", "reason"))
        return
    if bundles:
        owners = _run(metadata, cluster, lambda found: found.owners())
        rows = [{"bundle": str(bundle), "broker": broker} for bundle, broker in sorted(owners.items())]
        show(rows, output, columns=("bundle", "broker"))
        return
    show(_run(metadata, cluster, lambda found: found.brokers()), output, columns=_COLUMNS)


@cluster.command(epilog="Example: magnetar cluster drain 10.0.0.7:8080 --metadata zk://zk1:2181/ledgers")
@METADATA
@_CLUSTER
@click.argument("broker")
@click.option("--force", is_flag=True, help="Drain it even if no broker of that name runs.")
def drain(metadata: str, cluster: str, broker: str, *, force: bool) -> None:
    """Have BROKER give its bundles to the others, and take none until `undrain`."""
    _run(metadata, cluster, lambda found: found.drain(broker, force=force))
    click.echo(
        f"{broker} gives its bundles to other brokers; `magnetar cluster status` shows how many are left"
    )


@cluster.command(epilog="Example: magnetar cluster undrain 10.0.0.7:8080 --metadata zk://zk1:2181/ledgers")
@METADATA
@_CLUSTER
@click.argument("broker")
def undrain(metadata: str, cluster: str, broker: str) -> None:
    """Let BROKER take bundles again."""
    _run(metadata, cluster, lambda found: found.undrain(broker))
    click.echo(f"{broker} takes bundles again")
