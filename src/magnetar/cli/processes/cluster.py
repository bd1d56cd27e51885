"""`magnetar cluster`: the brokers that share the topics of a cluster (docs/cluster.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click

from magnetar.cli.exit_codes import CONFLICT
from magnetar.cli.output import FORMATS, show
from magnetar.cli.processes.member_options import METADATA, bookie_access

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


@cluster.command(
    epilog="Example: magnetar cluster adopt --check --metadata zk://zk1:2181/ledgers --cluster pulsar"
)
@METADATA
@click.option("--cluster", required=True, help="Name of the cluster, as Apache Pulsar has it.")
@click.option("--check", is_flag=True, help="Tell what is found and what is not understood; change nothing.")
@click.option(
    "--give-back", is_flag=True, help="End the adoption, so that Apache Pulsar serves the cluster again."
)
@bookie_access
@_OUTPUT
def adopt(
    metadata: str, cluster: str, check: bool, give_back: bool, access: Mapping[str, object], output: str
) -> None:
    """Serve a cluster of Apache Pulsar's, with all its topics, where it is (docs/adoption.md).

    With `--check` the exit code is 6 when something prevents the adoption.
    """
    if check and give_back:
        raise click.UsageError("--check and --give-back exclude each other")
    if give_back:
        _run(metadata, cluster, lambda found: found.give_back())
        click.echo(f"cluster {cluster} is Apache Pulsar's again: start its brokers")
        return
    from magnetar.server.bookies.ledger_access import client_options
    from magnetar.server.settings.ledger_settings import LedgerSettings

    made: Callable[..., LedgerSettings] = LedgerSettings
    options = client_options(made(**access))
    found = _run(metadata, cluster, lambda it: it.survey() if check else it.adopt(options))
    show([each.row() for each in found.findings], output, columns=("weight", "path", "what"))
    click.echo(", ".join(f"{count} {kind}" for kind, count in found.counts.items()), err=True)
    if found.obstacles:
        click.echo(f"{len(found.obstacles)} findings prevent the adoption; nothing was changed", err=True)
        raise click.exceptions.Exit(CONFLICT)
    if check:
        click.echo(f"cluster {cluster} can be adopted; nothing was changed", err=True)
    else:
        click.echo(f"cluster {cluster} is adopted: start brokers with --cluster {cluster}", err=True)
