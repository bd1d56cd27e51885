"""`magnetar lake`: Iceberg tables over topics."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import click

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.base.errors import MagnetarError
from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls, confirm
from magnetar.cli.given import given_as
from magnetar.cli.output import styled
from magnetar.cli.storage.progress import ShownProgress

_POLL_S: Final = 0.2
_ALL: Final = f"{paths.ROOT}/lake"
_SHOWN_MAX: Final = 20
"""Most problems of a table that the table output shows; `-o json` has all."""


_MERGE_COUNTS: Final = ("files", "made", "file_bytes", "made_bytes", "waiting")
"""Figures of a merge that are summed up over partitions."""


class LakeJobError(MagnetarError):
    """A job of the broker failed; the message has the reason."""


@click.group()
def lake() -> None:
    """Iceberg tables over topics: status, full checks, maintenance (docs/lake.md)."""


_TOPIC: Final = click.argument("topic", required=False)
_EVERY: Final = click.option("--all", "every", is_flag=True, help="Do this for all topics that have a table.")


def _path(topic: str) -> str:
    return f"{paths.topic(topic)}/lake"


def _topics(admin: Admin, topic: str | None, *, every: bool) -> list[str]:
    """The named topic, or all topics that have a table. Raises click.UsageError."""
    if (topic is None) == (not every):
        raise click.UsageError("name one TOPIC, or give --all")
    if topic is not None:
        return [topic]
    return [row["topic"] for row in admin.call("GET", _ALL)["tables"]]


@lake.command(epilog="Example: magnetar lake status orders")
@_TOPIC
@calls
def status(caller: Caller, topic: str | None) -> None:
    """Show the table of TOPIC and whether it is up to date; without TOPIC, all tables."""
    with caller.admin() as admin:
        if topic is not None:
            caller.show(admin.call("GET", _path(topic)))
            return
        found = admin.call("GET", _ALL)
    if caller.output != "table":
        caller.show(found)
        return
    caller.show(found["tables"], columns=("topic", "table"))
    for row in found["behind"]:
        click.echo(f"{styled('behind', fg='yellow')} {row['log']}: {row['error']}")


@lake.command(epilog="Example: magnetar lake verify orders")
@_TOPIC
@_EVERY
@calls
def verify(caller: Caller, topic: str | None, *, every: bool) -> int:
    """Compare the table of TOPIC with the broker's lists and every object; ends with 7 for a difference."""
    with caller.admin() as admin:
        found = [_run(admin, each, "verify", {}) for each in _topics(admin, topic, every=every)]
    if caller.output != "table":
        caller.show(found if every else found[0])
    else:
        for table in found:
            _show_check(table)
    return exit_codes.NOT_FOUND if any(table["problems"] for table in found) else 0


def _show_check(table: dict[str, Any]) -> None:
    problems: list[dict[str, str]] = table["problems"]
    word = styled("failed", fg="red") if problems else styled("ok    ", fg="green")
    earlier = f", {table['earlier_files']} more of earlier snapshots" if table["earlier_files"] else ""
    click.echo(f"{word} {table['table']}: {table['files']} files{earlier}, {len(problems)} problems")
    for problem in problems[:_SHOWN_MAX]:
        click.echo(f"       {problem['kind']}: {problem['path']}: {problem['detail']}")
    if len(problems) > _SHOWN_MAX:
        click.echo(f"       and {len(problems) - _SHOWN_MAX} more: -o json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the command line gives."""

    topic: str | None
    every: bool
    keep_days: float
    keep_snapshots: int
    target_mib: int
    dry_run: bool
    yes: bool


@lake.command(epilog="Example: magnetar lake maintain orders --keep-days 1 --dry-run")
@_TOPIC
@_EVERY
@click.option(
    "--keep-days", type=click.FloatRange(min=0), default=5.0, help="Days for which snapshots are kept.  [5]"
)
@click.option(
    "--keep-snapshots",
    type=click.IntRange(min=1),
    default=10,
    help="Number of newest snapshots to keep.  [10]",
)
@click.option(
    "--target-mib",
    type=click.IntRange(min=0),
    default=128,
    help="Largest size of a merged data file in MiB; 0: merge none.  [128]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@calls
@given_as(_Given)
def maintain(caller: Caller, given: _Given) -> None:
    """Merge small data files of TOPIC, expire old snapshots of its table, and delete metadata that nothing
    names.

    Consumers, readers of the table and Spark read the merged files; the small ones are deleted when the lag
    of offloading is over.
    """
    if not given.dry_run:
        whose = "all tables" if given.every else f"the table of {given.topic}"
        confirm(f"Expire snapshots of {whose}? They cannot be read afterwards.", yes=given.yes)
    dry: dict[str, object] = {"dryRun": "true" if given.dry_run else "false"}
    merging = {"targetBytes": given.target_mib << 20, **dry}
    expiring = {"keepSeconds": int(given.keep_days * 86_400), "keepSnapshots": given.keep_snapshots, **dry}
    found = []
    with caller.admin() as admin:
        for each in _topics(admin, given.topic, every=given.every):
            merged = [_run(admin, part, "merge", merging) for part in _parts(admin, each) if given.target_mib]
            table = _run(admin, each, "maintain", expiring)
            if table is not None:
                table |= {f"merge_{name}": sum(each[name] for each in merged) for name in _MERGE_COUNTS}
            found.append(table)
    if caller.output != "table":
        caller.show(found if given.every else found[0])
        return
    for line in _upkeep_lines(found):
        click.echo(line)


def _upkeep_lines(tables: Iterable[dict[str, object] | None]) -> Iterable[str]:
    for table in tables:
        if table is None:
            yield "there is no table: nothing is offloaded yet"
            continue
        would = "would be " if table["dry_run"] else ""
        yield (
            f"{table['table']}: {table['expired_snapshots']} snapshots {would}expired,"
            f" {table['snapshots']} are left; {table['deleted_metadata_files']} files of metadata"
            f" ({table['deleted_metadata_bytes']:,} bytes) {would}deleted"
        )
        if table["merge_files"]:
            yield (
                f"  {table['merge_files']} small data files ({table['merge_file_bytes']:,} bytes)"
                f" {would or 'are '}merged into {table['merge_made']}"
            )
        if table["merge_waiting"]:
            yield (
                f"  {table['merge_waiting']} more wait until files that were merged before are deleted:"
                " run it again then"
            )


def _parts(admin: Admin, topic: str) -> list[str]:
    """The partitions of a topic; the topic itself when it is not partitioned."""
    count = admin.partitions(topic)
    return [f"{topic}-partition-{number}" for number in range(count)] or [topic]


def _run(admin: Admin, topic: str, kind: str, query: dict[str, object]) -> Any:
    """Starts a job of the broker, waits for its end, and returns its result. Raises LakeJobError."""
    path = f"{_path(topic)}/{kind}"
    admin.call("POST", path, query=query)
    progress = ShownProgress(f"{kind} {topic}")
    try:
        while True:
            job = admin.call("GET", path)
            progress.at(job["done"], job["total"])
            if job["status"] != "RUNNING":
                break
            time.sleep(_POLL_S)
    finally:
        progress.close()
    if job["status"] != "SUCCESS":
        raise LakeJobError(f"{kind} of {topic} failed: {job['lastError']}")
    return job["result"]
