"""`magnetar doctor storage`: damage in the files of a broker's messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from magnetar.cli import exit_codes
from magnetar.cli.output import FORMATS, show
from magnetar.cli.processes.member_options import METADATA, bookie_access

if TYPE_CHECKING:
    from magnetar.server.storage.cluster_doctor import ClusterReport
    from magnetar.server.storage.storage_doctor import Report

_F = TypeVar("_F", bound=Callable[..., object])
_SHOWN_MAX: Final = 1_000
"""Most lines of a table; JSON and YAML have all."""


def default_data() -> Path:
    """The default data folder of a broker."""
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "share") / "magnetar"


_OUTPUT: Final = click.option(
    "--output", "-o", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)


def _options(command: _F) -> _F:
    for option in (
        _OUTPUT,
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            help="Folder of the broker's data, or of one bookie.  [~/.local/share/magnetar]",
        ),
    ):
        command = option(command)
    return command


_COPIES: Final = click.option(
    "--copies",
    is_flag=True,
    help="Read all objects of offloaded ledgers too, instead of checking their size only.",
)


@click.group()
def storage() -> None:
    """Find damage in the files of a broker or bookie, mend what loses nothing, give up what is lost."""


@storage.command(epilog="Example: magnetar doctor storage check --data /var/lib/magnetar")
@_COPIES
@_options
def check(data: Path | None, output: str, copies: bool) -> int:
    """Read every block and index; list damage and lost entries. Changes nothing. Objects of offloaded
    ledgers must exist with their full size. While a broker runs, topics are not named, the current segment
    is omitted, and objects are not checked.
    """
    from magnetar.server.storage import storage_doctor

    report = storage_doctor.check(data or default_data(), read_copies=copies)
    _print(report, output)
    return 0 if report.is_good else exit_codes.NOT_FOUND


@storage.command(
    "check-cluster", epilog="Example: magnetar doctor storage check-cluster --metadata zk://zk1:2181/ledgers"
)
@METADATA
@click.option("--cluster", default="standalone", help="Name of the cluster.  [standalone]")
@bookie_access
@_OUTPUT
def check_cluster(metadata: str, cluster: str, access: Mapping[str, object], output: str) -> int:
    """Read every entry of every closed ledger of a cluster of brokers; list those that no bookie has any
    more. Brokers and bookies may run. As with every reader, a bad copy beside a good one is rewritten.
    Ledgers that are being written, and objects of offloaded ledgers, are counted and not read.
    """
    from magnetar.runtime import loop
    from magnetar.server.bookies.ledger_access import client_options
    from magnetar.server.settings.ledger_settings import LedgerSettings
    from magnetar.server.storage import cluster_doctor

    made: Callable[..., LedgerSettings] = LedgerSettings
    report = loop.run(cluster_doctor.check(metadata, cluster, client_options(made(**access))))
    if output == "table":
        _print_cluster(report)
    else:
        show(asdict(report), output)
    return 0 if report.is_good else exit_codes.NOT_FOUND


@storage.command(epilog="Example: magnetar doctor storage repair --data /var/lib/magnetar --apply")
@click.option("--apply", is_flag=True, help="Make the changes.  [only show them]")
@_options
def repair(data: Path | None, output: str, apply: bool) -> int:
    """Rebuild headers and footers from the blocks, rename files to their names, and set foreign files
    aside. This loses nothing. The broker must be stopped.
    """
    from magnetar.server.storage import storage_doctor

    folder = data or default_data()
    report = storage_doctor.mend(folder) if apply else storage_doctor.check(folder)
    _print(report, output)
    if not apply and report.repairable and output == "table":
        click.echo(f"{len(report.repairable)} can be repaired; add --apply")
    return exit_codes.NOT_FOUND if report.repairable else 0


@storage.command(epilog="Example: magnetar doctor storage salvage --data /var/lib/magnetar --apply")
@click.option("--apply", is_flag=True, help="Make the changes.  [only show them]")
@_COPIES
@_options
def salvage(data: Path | None, output: str, apply: bool, copies: bool) -> int:
    """Repair, and give up lost entries for good, so that consumers skip them. They are recorded in
    bookie/GIVEN-UP.json of the data folder; missing files are removed from the list. The broker must be
    stopped.
    """
    from magnetar.server.storage import storage_doctor

    folder = data or default_data()
    look = storage_doctor.give_up if apply else storage_doctor.check
    report = look(folder, read_copies=copies)
    _print(report, output)
    if apply:
        return 0
    if report.undecided and output == "table":
        entries = sum(lost.last - lost.first + 1 for lost in report.undecided)
        click.echo(f"{entries} entries would be given up; add --apply")
    return exit_codes.NOT_FOUND if report.undecided else 0


def _print(report: Report, output: str) -> None:
    if output != "table":
        show(asdict(report), output)
        return
    for line in report.done:
        click.echo(f"done: {line}")
    for finding in report.findings[:_SHOWN_MAX]:
        kind = "repairable" if finding.repairable else "damaged"
        owner = "" if finding.ledger is None else f", ledger {finding.ledger}"
        where = f"{finding.file} at byte {finding.offset}, {finding.length} bytes{owner}"
        click.echo(f"{kind}: {where}: {finding.detail}")
    for lost in report.lost[:_SHOWN_MAX]:
        kind = "given up" if lost.given_up else "lost"
        where = f"; {lost.bytes} bytes in {lost.file} at byte {lost.offset}" if lost.file else ""
        topic = f" of {lost.topic}" if lost.topic else ""
        click.echo(f"{kind}: ledger {lost.ledger}{topic}, entries {lost.first} to {lost.last}{where}")
    entries = sum(lost.last - lost.first + 1 for lost in report.lost)
    unnamed = "" if report.topics_known else " (the broker runs: topics are not named)"
    if report.of_bookie:
        unnamed = " (of one bookie: others have copies)"
    click.echo(
        f"{report.segments} segments, {report.blocks} good blocks, {report.objects} objects,"
        f" {len(report.findings)} damages, {entries} entries lost{unnamed}"
    )


def _print_cluster(report: ClusterReport) -> None:
    for lost in report.lost[:_SHOWN_MAX]:
        topic = f" of {lost.topic}" if lost.topic else ""
        kind = "given up" if lost.given_up else "lost"
        click.echo(f"{kind}: ledger {lost.ledger}{topic}, entries {lost.first} to {lost.last}")
        if not lost.given_up:
            click.echo(
                "  next: start bookies that are away, check again; consumers skip the entries after magnetar"
                f" storage accept-loss {lost.ledger} {lost.first} --to {lost.last} --metadata URL"
            )
    for each in report.unclear[:_SHOWN_MAX]:
        topic = f" of {each.topic}" if each.topic else ""
        click.echo(
            f"not known: ledger {each.ledger}{topic}, entries {each.first} to {each.last}: {each.reason}"
        )
    lost_entries, unclear = (
        sum(each.last - each.first + 1 for each in found) for found in (report.lost, report.unclear)
    )
    click.echo(
        f"{report.topics} topics, {report.ledgers} ledgers, {report.entries} good entries,"
        f" {lost_entries} entries lost, {unclear} not known; not read: {report.open_ledgers} open ledgers,"
        f" {report.offloaded} in object stores"
    )
