"""Status, full check and upkeep of a table: expiry of snapshots, deletion of unnamed metadata, dropping.

Consumers read the data files, so `tiered/merger.py` merges them together with the stored lists, and tables
follow. This module keeps the metadata small: appends merge manifests, old snapshots expire, and files of
metadata that nothing names are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate

from magnetar.base.names import TopicName
from magnetar.history.end import read_end
from magnetar.lake.catalog import Lake, files_of
from magnetar.lake.data_files import StreamSource
from magnetar.lake.lake_values import LakeError, LogFiles, TableStatus
from magnetar.lake.naming import table_name
from magnetar.lake.planning import seen
from magnetar.lake.snapshot_times import is_ahead
from magnetar.tiered.parquet.parquet_history import HistoryError

SMALL_BYTES: Final = 32 << 20
"""Bytes below which a file counts as small: readers spend more on its footer and request than on its data."""
UNNAMED_AGE_MS: Final = 3_600_000
"""Milliseconds. Younger files of metadata are kept: they may belong to a commit under way."""

Progress = Callable[[int, int], None]
"""Called with the number of checked files and of all files."""


def status(lake: Lake, topic: TopicName) -> TableStatus | None:
    """The state of the table; None when there is none."""
    table = lake.table(topic)
    if table is None:
        return None
    files = list(files_of(table, snapshot := table.current_snapshot()))
    return TableStatus(
        table=str(table_name(topic)),
        location=table.location(),
        metadata_location=table.metadata_location,
        files=len(files),
        file_bytes=sum(file.file_size_in_bytes for file in files),
        rows=sum(file.record_count for file in files),
        snapshots=len(table.metadata.snapshots),
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        snapshot_ms=None if snapshot is None else snapshot.timestamp_ms,
        schema_id=table.schema().schema_id,
        columns=len(table.schema().fields),
        versions={str(number): version.encode() for number, version in seen(table.properties).items()},
    )


# ------------------------------------------------------------ check


def verify(lake: Lake, topic: TopicName, logs: Sequence[LogFiles], progress: Progress) -> dict[str, object]:
    """Compares a table with the stored lists and with the objects; `problems` in the result lists
    differences.

    Every file is opened to check that it exists and has the size and the rows in table and list. Files that
    only earlier snapshots have are checked for existence.
    """
    problems: list[dict[str, str]] = []

    def wrong(kind: str, path: str, detail: str) -> None:
        problems.append({"kind": kind, "path": path, "detail": detail})

    wanted = {file.path: (file, log.partition) for log in logs for file in log.files}
    table = lake.table(topic)
    if table is None:
        for path in wanted:
            wrong("not-in-table", path, "the stored list names it; there is no table")
        return {"table": str(table_name(topic)), "files": 0, "earlier_files": 0, "problems": problems}
    there = {file.file_path: file for file in files_of(table, table.current_snapshot())}
    earlier = _earlier(table, frozenset(there))
    for path, (file, partition) in wanted.items():
        entry = there.get(path)
        if entry is None:
            wrong("not-in-table", path, f"the stored list names it for ledger {file.ledger_id}")
        elif entry.file_size_in_bytes != file.file_bytes:
            wrong(
                "size", path, f"{entry.file_size_in_bytes} bytes in the table, {file.file_bytes} in the list"
            )
        elif entry.partition[0] != partition:
            wrong("partition", path, f"{entry.partition[0]} in the table, {partition} in the list")
    for path in there.keys() - wanted.keys():
        wrong("not-in-list", path, "no stored list names it")
    total = len(there) + len(earlier)
    for done, (path, entry) in enumerate(there.items()):
        progress(done, total)
        _check_object(table, path, entry.file_size_in_bytes, entry.record_count, wrong)
    for done, (path, names) in enumerate(earlier.items()):
        progress(len(there) + done, total)
        if not table.io.new_input(path).exists():
            wrong("gone", path, f"snapshot {names} still names it")
    progress(total, total)
    return {
        "table": str(table_name(topic)),
        "files": len(there),
        "earlier_files": len(earlier),
        "problems": problems,
    }


def _earlier(table: Table, now: frozenset[str]) -> dict[str, int]:
    """Files that only earlier snapshots name, each with the id of one of these snapshots."""
    found: dict[str, int] = {}
    for snapshot in table.metadata.snapshots:
        for file in files_of(table, snapshot):
            if file.file_path not in now:
                found.setdefault(file.file_path, snapshot.snapshot_id)
    return found


def _check_object(
    table: Table, path: str, size: int, rows: int, wrong: Callable[[str, str, str], None]
) -> None:
    opened = table.io.new_input(path)
    try:
        actual = len(opened)
        if actual != size:
            wrong("size", path, f"{actual} bytes, the table says {size}")
            return
        with opened.open() as stream:
            counted = read_end(StreamSource(path, size, stream)).metadata.num_rows
    except FileNotFoundError:
        wrong("missing", path, "the object does not exist")
    except (OSError, ValueError, HistoryError) as error:
        wrong("unreadable", path, str(error)[:300])
    else:
        if counted != rows:
            wrong("rows", path, f"{counted} rows, the table says {rows}")


# ------------------------------------------------------------ upkeep


def maintain(
    lake: Lake,
    topic: TopicName,
    *,
    now_ms: int,
    keep_ms: int,
    keep_min: int,
    dry_run: bool,
    progress: Progress = lambda done, total: None,
) -> dict[str, object] | None:
    """Expires snapshots older than `keep_ms` except the last `keep_min`, then deletes metadata that nothing
    names; with `dry_run` only counts them. None when there is no table."""
    table = lake.table(topic)
    if table is None:
        return None
    expired = (
        []
        if is_ahead(table, now_ms)
        else _expirable(table, now_ms=now_ms, keep_ms=keep_ms, keep_min=keep_min)
    )
    if expired and not dry_run:
        _expire(table, expired)
        table = lake.table(topic)
        if table is None:
            raise LakeError(f"table {table_name(topic)} was dropped meanwhile")
    gone = frozenset(expired) if dry_run else frozenset[int]()
    snapshots = len(table.metadata.snapshots)
    unnamed = _unnamed(table, now_ms, gone, lambda done: progress(done, snapshots))
    if not dry_run:
        for number, (path, _) in enumerate(unnamed):
            progress(snapshots + number, snapshots + len(unnamed))
            table.io.delete(path)
    progress(snapshots + len(unnamed), snapshots + len(unnamed))
    files = list(files_of(table, table.current_snapshot()))
    small = [file for file in files if file.file_size_in_bytes < SMALL_BYTES]
    return {
        "table": str(table_name(topic)),
        "dry_run": dry_run,
        "expired_snapshots": len(expired),
        "snapshots": len(table.metadata.snapshots) - len(gone),
        "deleted_metadata_files": len(unnamed),
        "deleted_metadata": [path for path, _ in unnamed],
        "deleted_metadata_bytes": sum(size for _, size in unnamed),
        "manifests": _manifests(table),
        "files": len(files),
        "small_files": len(small),
        "small_file_bytes": sum(file.file_size_in_bytes for file in small),
    }


def _manifests(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else len(snapshot.manifests(table.io))


def _expirable(table: Table, *, now_ms: int, keep_ms: int, keep_min: int) -> list[int]:
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    newest = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    old = newest[: max(0, len(newest) - max(1, keep_min))]
    return [
        snapshot.snapshot_id
        for snapshot in old
        if snapshot.snapshot_id not in named and now_ms - snapshot.timestamp_ms >= keep_ms
    ]


def _expire(table: Table, snapshot_ids: list[int]) -> None:
    current = table.current_snapshot()
    head = None if current is None else current.snapshot_id
    transaction = table.transaction()
    transaction._apply(
        (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshot_ids}),),
        (AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": head}),),
    )
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise LakeError(f"the table was changed meanwhile, try again: {error}") from error


def _named_metadata(table: Table, without: frozenset[int], read: Callable[[int], None]) -> set[str]:
    """Every file of metadata that the table or one of its snapshots needs. `read` is called with the number
    of snapshots whose manifests were read."""
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    snapshots: list[Snapshot] = [
        snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in without
    ]
    for number, snapshot in enumerate(snapshots):
        read(number)
        named.add(snapshot.manifest_list)
        named.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    named.update(statistics.statistics_path for statistics in table.metadata.statistics)
    return named


def _unnamed(
    table: Table, now_ms: int, without: frozenset[int], read: Callable[[int], None]
) -> list[tuple[str, int]]:
    """Files of metadata that nothing names, with their sizes."""
    files, folder = _files_below(table, f"{table.location()}/metadata")
    # Both sides use the names of the file system, so that they can be compared.
    named = {_path_of(table, path) for path in _named_metadata(table, without, read)}
    return [
        (f"{table.location()}/metadata/{file.path.removeprefix(folder).lstrip('/')}", file.size)
        for file in files
        if file.path not in named
        and file.mtime is not None
        and now_ms - file.mtime.timestamp() * 1000 >= UNNAMED_AGE_MS
    ]


def _files_below(table: Table, location: str) -> tuple[list[fs.FileInfo], str]:
    store, folder = _store_of(table, location)
    found = store.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return [file for file in found if file.type == fs.FileType.File], folder


def _store_of(table: Table, location: str) -> tuple[fs.FileSystem, str]:
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise LakeError(
            f"{type(io).__name__} cannot list {location}: set py-io-impl to pyiceberg's PyArrowFileIO"
        )
    scheme, host, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, host), path


def _path_of(table: Table, location: str) -> str:
    io = table.io
    assert isinstance(io, PyArrowFileIO)
    path: str = io.parse_location(location, io.properties)[2]
    return path


# ------------------------------------------------------------ end


def drop(lake: Lake, topic: TopicName, versions: Mapping[str, str]) -> bool:
    """Drops the table with its metadata if it has seen no later version than `versions`; returns whether it
    did.

    Data files are not touched: they belong to the stored lists.
    """
    table = lake.table(topic)
    if table is None:
        return False
    if {str(number): version.encode() for number, version in seen(table.properties).items()} != dict(
        versions
    ):
        return False
    name = table_name(topic)
    try:
        lake.catalog.drop_table((name.namespace, name.table))
    except NoSuchTableError:
        return False
    location = table.location()
    if location.startswith(f"{lake.settings.warehouse}/"):
        store, folder = _store_of(table, location)
        store.delete_dir(folder)
    return True


def plain(status_: TableStatus | None) -> dict[str, object] | None:
    """The status as values for JSON."""
    return None if status_ is None else asdict(status_)
