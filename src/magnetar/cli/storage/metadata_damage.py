"""`magnetar doctor metadata`: damaged values in a broker's or a cluster's metadata."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from magnetar.cli import exit_codes
from magnetar.cli.output import FORMATS, show
from magnetar.cli.storage.damage import default_data

_SHOWN_MAX: Final = 1_000
"""Most lines of a table; JSON and YAML have all."""


@click.command(epilog="Example: magnetar doctor metadata --data /var/lib/magnetar")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Data folder of a broker that is stopped.  [~/.local/share/magnetar]",
)
@click.option(
    "--metadata", "service", help="Metadata service in place of a folder: zk://… or etcd://….  [none]"
)
@click.option("--cluster", default="standalone", help="Name of the cluster at the service.  [standalone]")
@click.option(
    "--output", "-o", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)
def metadata(data: Path | None, service: str | None, cluster: str, output: str) -> int:
    """Read every value of the metadata. List those that a broker cannot use: what is wrong, what follows, and
    the next step. Brokers of a cluster may run. No value is changed; a folder is opened as at a start, which
    merges the log of its database and removes what belonged to the ended process.
    """
    from magnetar.server.storage import metadata_doctor

    if data is not None and service is not None:
        raise click.UsageError("name a folder or a service, not both")
    report = asyncio.run(
        metadata_doctor.of_folder(data or default_data())
        if service is None
        else metadata_doctor.of_service(service, cluster)
    )
    if output == "table":
        for found in report.damaged[:_SHOWN_MAX]:
            click.echo(f"{'partly damaged' if found.partly else 'damaged'}: {found.path}: {found.damage}")
            click.echo(f"  so: {found.consequence}")
            click.echo(f"  next: {found.remedy}")
        click.echo(f"{len(report.damaged)} of {report.values} values are damaged")
    else:
        show(asdict(report), output)
    return exit_codes.NOT_FOUND if report.damaged else 0
