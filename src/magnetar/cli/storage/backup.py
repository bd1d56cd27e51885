"""`magnetar backup` and `magnetar restore`: copies of a data folder, and new folders from them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from magnetar.adminclient import paths
from magnetar.cli import exit_codes
from magnetar.cli.caller import Caller, calls
from magnetar.cli.storage.progress import ShownProgress
from magnetar.runtime.clock import SystemClock
from magnetar.server.backup import copying, restoring
from magnetar.server.backup.manifest import BackupError, DamagedBackupError, Manifest
from magnetar.server.backup.repository import Repository
from magnetar.server.backup.staging import of_unused

_RENEW_S: Final = 60.0
_POINTS: Final = f"{paths.ROOT}/brokers/points-in-time"
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_SHOWN_MAX: Final = 20

repository_argument = click.argument("repository", type=_FOLDER)


@click.group()
def backup() -> None:
    """Backups of a data folder, made while the broker runs (docs/backup.md)."""


@backup.command(epilog="Example: magnetar backup create /backups/magnetar")
@repository_argument
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A data folder without a running broker.  [that of the broker]",
)
@click.option("--no-history", is_flag=True, help="Do not copy the object store in the data folder.")
@calls
def create(caller: Caller, repository: Path, data: Path | None, no_history: bool) -> None:
    """Add a backup to the folder REPOSITORY, which is created if it is missing. Only changed files are
    copied. The command asks the broker for a point in time of its data folder, which must be on this
    machine."""
    target = Repository.open(repository, create=True)
    with target.writing(), _point(caller, data) as (folder, alive):
        history = not no_history
        progress = ShownProgress("bytes", copying.bytes_of(folder, with_history=history))

        def copied(count: int) -> None:
            progress.add(count)
            alive()

        made = copying.copy(folder, target, with_history=history, progress=copied)
        progress.close()
    caller.show(_row(made))


@contextlib.contextmanager
def _point(caller: Caller, data: Path | None) -> Iterator[tuple[Path, _Alive]]:
    """A point in time of the data folder, and a function to call repeatedly while the folder is copied."""
    if data is not None:
        with of_unused(data, SystemClock()) as folder:
            yield folder, _Alive(lambda: None)
        return
    with caller.admin() as admin:
        point = admin.call("POST", _POINTS)
        path = f"{_POINTS}/{paths.part(point['id'])}"
        try:
            folder = Path(point["folder"])
            if not folder.is_dir():
                raise BackupError(
                    f"the broker's data folder {folder.parents[1]} cannot be read here: run this command on"
                    " the broker's machine, as the user of the broker"
                )
            yield folder, _Alive(lambda: admin.call("POST", path))
        finally:
            admin.call("DELETE", path)


class _Alive:
    """Tells the broker repeatedly that its point in time is still needed."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell
        self._next_s = time.monotonic() + _RENEW_S

    def __call__(self) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _RENEW_S
            self._tell()


@backup.command("list", epilog="Example: magnetar backup list /backups/magnetar")
@repository_argument
@calls
def list_backups(caller: Caller, repository: Path) -> int:
    """Show the backups in REPOSITORY, the oldest one first; exit code 7 when one cannot be read."""
    source = Repository.open(repository)
    rows: list[dict[str, object]] = []
    wrong: list[str] = []
    for each in source.ids():
        try:
            rows.append(_row(source.manifest(each)))
        except DamagedBackupError as error:
            wrong.append(str(error))
    caller.show(rows, columns=("backup", "time", "files", "bytes", "copiedBytes", "version"))
    for line in wrong:
        click.echo(line, err=True)
    return exit_codes.NOT_FOUND if wrong else 0


@backup.command(epilog="Example: magnetar backup verify /backups/magnetar")
@repository_argument
@click.argument("backup_id", required=False)
@click.option("--all", "every", is_flag=True, help="Verify all backups.  [the newest one]")
@calls
def verify(caller: Caller, repository: Path, backup_id: str | None, every: bool) -> int:
    """Read every file of a backup and compare it with its checksum; exit code 7 for a difference."""
    source = Repository.open(repository)
    wrong: list[str] = []
    for each in source.ids() if every else [backup_id]:
        try:
            manifest = source.manifest(each)
        except DamagedBackupError as error:
            wrong.append(str(error))
            continue
        progress = ShownProgress(f"bytes of {manifest.backup_id}", manifest.size_bytes)
        wrong += source.verify(manifest, progress.add)
        progress.close()
    if caller.output != "table":
        caller.show({"wrong": wrong})
    for line in wrong[:_SHOWN_MAX] if caller.output == "table" else ():
        click.echo(line)
    if caller.output == "table":
        click.echo(
            f"{len(wrong)} files are damaged or missing" if wrong else "every file matches its checksum"
        )
    return exit_codes.NOT_FOUND if wrong else 0


@backup.command(epilog="Example: magnetar backup prune /backups/magnetar --keep 7")
@repository_argument
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, help="Number of backups to keep, the newest ones."
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@calls
def prune(caller: Caller, repository: Path, keep: int, dry_run: bool) -> None:
    """Delete old backups, and the files that no other backup has."""
    target = Repository.open(repository)
    with target.writing():
        gone = target.ids()[:-keep]
        freed = 0 if dry_run or not gone else target.drop(gone)
    caller.show({"deleted": gone, "freedBytes": freed})


@click.command(epilog="Example: magnetar restore /backups/magnetar --data /srv/magnetar")
@repository_argument
@click.argument("backup_id", required=False)
@click.option(
    "--data", type=_FOLDER, required=True, help="Data folder to create; it must be empty or missing."
)
@calls
def restore(caller: Caller, repository: Path, backup_id: str | None, data: Path) -> None:
    """Restore a backup in REPOSITORY to a new data folder; the newest backup, unless BACKUP_ID is given."""
    source = Repository.open(repository)
    manifest = source.manifest(backup_id)
    progress = ShownProgress("bytes", manifest.size_bytes)
    restoring.restore(source, manifest, data, progress=progress.add)
    progress.close()
    caller.show({**_row(manifest), "data": str(data)})


def _row(manifest: Manifest) -> dict[str, object]:
    return {
        "backup": manifest.backup_id,
        "time": datetime.fromtimestamp(manifest.created_ms / 1000, UTC).isoformat(timespec="seconds"),
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "copiedBytes": manifest.copied_bytes,
        "version": manifest.version,
    }
