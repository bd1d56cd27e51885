"""`magnetar storage`: messages whose metadata is in doubt."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from magnetar.base.ids import LedgerId
from magnetar.cli.caller import confirm
from magnetar.cli.output import FORMATS, show

if TYPE_CHECKING:
    from magnetar.server.storage.storage_decisions import FolderDecisions

_DATA: Final = click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of the server's data.  [~/.local/share/magnetar]"
)
_OUTPUT: Final = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)
_YES: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_DRY: Final = click.option("--dry-run", is_flag=True, help="Show what would be decided, without deciding it.")
_WHEN: Final = "A running server does this within seconds, a stopped one at its next start."


@click.group()
def storage() -> None:
    """Messages that metadata does not name, and metadata that is doubted (docs/storage.md)."""


@storage.group()
def quarantine() -> None:
    """Ledgers that are kept though metadata does not name them."""


def _folder(data: Path | None) -> FolderDecisions:
    from magnetar.server.settings.config import default_data_dir
    from magnetar.server.storage.storage_decisions import FolderDecisions

    return FolderDecisions(data or default_data_dir())


def _agreed(would: str, question: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to proceed. A dry run prints `would` and does not; otherwise the user is asked, and a no
    aborts."""
    if dry_run:
        click.echo(would)
        return False
    confirm(question, yes=yes)
    return True


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000).astimezone().isoformat(timespec="seconds")


@quarantine.command("list", epilog="Example: magnetar storage quarantine list --data /var/lib/magnetar")
@_DATA
@_OUTPUT
def list_(data: Path | None, output: str) -> None:
    """Show the ledgers in quarantine, as of the server's last check, and the reason if metadata is
    doubted."""
    folder = _folder(data)
    state, rows = folder.state(), folder.quarantine()
    if output != "table":
        show({**state, "quarantine": rows}, output)
        return
    if state["doubt"]:
        click.echo(f"doubted: {state['doubt']}")
    if not rows:
        click.echo("nothing is in quarantine")
        return
    shown: list[dict[str, object]] = [{**row, "since": _time(row["since_ms"])} for row in rows]
    show(shown, output, columns=("ledger", "entries", "bytes", "since", "seen_seconds", "decided"))


@quarantine.command(epilog="Example: magnetar storage quarantine delete 17 18 --data /var/lib/magnetar")
@click.argument("ledgers", nargs=-1, type=int)
@click.option("--all", "every", is_flag=True, help="Delete all ledgers that are in quarantine now.")
@_YES
@_DRY
@_DATA
def delete(ledgers: tuple[LedgerId, ...], every: bool, yes: bool, dry_run: bool, data: Path | None) -> None:
    """Delete LEDGERS in quarantine before the end of their grace period."""
    folder = _folder(data)
    if bool(ledgers) == every:
        raise click.UsageError("name LEDGERS, or give --all")
    rows = folder.quarantine()
    chosen = [row["ledger"] for row in rows] if every else list(ledgers)
    size = sum(row["bytes"] for row in rows if row["ledger"] in chosen)
    told = f"{len(chosen)} ledgers with {size} bytes"
    if not _agreed(f"would delete {told}", f"Delete {told} for good?", yes=yes, dry_run=dry_run):
        return
    folder.delete(chosen)
    click.echo(f"{told} will be deleted. {_WHEN}")


@storage.command(epilog="Example: magnetar storage rebuild-metadata --dry-run --data /var/lib/magnetar")
@_YES
@_DRY
@_DATA
@_OUTPUT
def rebuild_metadata(yes: bool, dry_run: bool, data: Path | None, output: str) -> None:
    """Rebuild damaged metadata from its sound rows, when there is no backup.

    The server must not run. Rows with one flipped bit are corrected, other damaged rows are omitted and
    named; the damaged file stays as metadata.db.damaged. Ledgers that are no longer named go into quarantine.
    """
    from magnetar.server.settings.config import default_data_dir
    from magnetar.server.storage.metadata_rebuild import rebuild_metadata as rebuild

    folder = data or default_data_dir()
    if not dry_run:
        confirm(f"Make the metadata in {folder} again from its sound rows?", yes=yes)
    show(rebuild(folder, dry_run=dry_run), output)


class _Place(TypedDict):
    """Where it is noted that entries are given up."""

    data: Path | None
    metadata: str | None
    cluster: str


@storage.command(epilog="Example: magnetar storage accept-loss 17 4 --data /var/lib/magnetar")
@click.argument("ledger", type=click.IntRange(0))
@click.argument("entry", type=click.IntRange(0))
@click.option("--to", "last", type=click.IntRange(0), help="Last entry, to give up several.  [ENTRY]")
@_YES
@_DRY
@_DATA
@click.option(
    "--metadata",
    help="Metadata service of a cluster of several brokers, in place of --data: zk://HOST:PORT or"
    " etcd://HOST:PORT.  [none]",
)
@click.option("--cluster", default="standalone", help="Name of that cluster.  [standalone]")
def accept_loss(
    ledger: LedgerId, entry: int, last: int | None, yes: bool, dry_run: bool, **place: Unpack[_Place]
) -> None:
    """Give up ENTRY of LEDGER, which no bookie or object store has any more: consumers skip it. This has
    an effect only when the entry cannot be read although every bookie of the entry, or the store, has
    answered. The log names such entries.
    """
    stop = entry if last is None else last
    if stop < entry:
        raise click.UsageError("--to is less than ENTRY: give the last entry")
    if None not in (place["data"], place["metadata"]):
        raise click.UsageError("give --data or --metadata, not both")
    told = f"entries {entry} to {stop} of ledger {ledger}"
    would = f"give up {told}, where they cannot be read"
    if not _agreed(f"would {would}", f"{would.capitalize()}?", yes=yes, dry_run=dry_run):
        return
    _give_up(ledger, entry, stop, **place)
    click.echo(
        f"{told} are given up where they cannot be read. A running server applies this at its next check"
    )


def _give_up(ledger: LedgerId, first: int, last: int, **place: Unpack[_Place]) -> None:
    data, metadata = place["data"], place["metadata"]
    if metadata is None:
        from magnetar.server.settings.config import default_data_dir
        from magnetar.server.storage.storage_losses import accept_loss as accept

        accept(data or default_data_dir(), ledger, first, last)
        return
    from magnetar.runtime import loop
    from magnetar.server.cluster_metadata import ClusterMetadata

    async def accepted() -> None:
        async with ClusterMetadata.opened(metadata, place["cluster"]) as found:
            await found.accept_loss(ledger, first, last)

    loop.run(accepted())


@storage.command(epilog="Example: magnetar storage readmit bookie-1 --data /var/lib/magnetar")
@click.argument("bookie")
@_YES
@_DRY
@_DATA
def readmit(bookie: str, yes: bool, dry_run: bool, data: Path | None) -> None:
    """Let BOOKIE beside the broker, which lost messages, accept new ones from the next start on. For every
    ledger that exists then, it continues to answer that a missing entry is unknown, so that no recovery is
    misled. Entries that it lost have one copy less.
    """
    folder = _folder(data)
    told = f"{bookie} takes messages again, from the next start on"
    question = f"{bookie} lost messages. Have it take new ones?"
    if not _agreed(f"would decide that {told}", question, yes=yes, dry_run=dry_run):
        return
    folder.readmit(bookie)
    click.echo(told)


@storage.command(epilog="Example: magnetar storage accept --data /var/lib/magnetar")
@_YES
@_DRY
@_DATA
def accept(yes: bool, dry_run: bool, data: Path | None) -> None:
    """Declare the present metadata right, although it is older, foreign or new. Ledgers that it does not
    name stay in quarantine for the grace period, and are deleted then. The command shows what it accepts;
    it is valid for exactly this. The next start checks other files again.
    """
    folder = _folder(data)
    found = folder.found()
    told = found or "nothing is in doubt"
    question = f"Accept the metadata as it is ({told})? Messages that it does not name go one day."
    if not _agreed(f"would accept the metadata: {told}", question, yes=yes, dry_run=dry_run):
        return
    folder.accept(found)
    click.echo(told)
    click.echo(f"accepted. {_WHEN}")
