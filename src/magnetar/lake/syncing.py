"""Makes a table match a stored list, in one commit: columns, files, seen versions, expired snapshots.

    load the table ─ plan (planning.py) ─ read footers ─ write manifests ─ commit in the catalog
         ▲                                                                     │ another commit came first
         └─────────────────────────────────────────────────────────────────────┘

A crash before the commit leaves the table unchanged, and manifests that nothing names (`upkeep.py` deletes
them).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from magnetar.base.names import TopicName
from magnetar.lake.catalog import GUARDS, PROPERTIES, Lake, files_of
from magnetar.lake.columns import PARTITION, PARTITION_ID, merged
from magnetar.lake.data_files import OpenedFile
from magnetar.lake.lake_values import FilesGoneError, LakeError, LakeFile, LogFiles, Synced
from magnetar.lake.naming import table_name
from magnetar.lake.planning import TOPIC, Plan, plan, property_of, seen
from magnetar.lake.replacing import ReplaceFiles
from magnetar.lake.snapshot_times import in_order

LIST_VERSION: Final = "magnetar.list-version"
"""Property that marks our snapshots."""
_TRIES: Final = 20
"""Most attempts at a change while other programs commit."""
_PARTITION_FIELD_ID: Final = 1000
"""First id of partition fields in Iceberg."""


@dataclass(frozen=True)
class _Change:
    """The content of one commit."""

    wanted: LogFiles
    plan: Plan
    added: list[OpenedFile]
    removed: list[DataFile]
    columns: Schema | None
    """The table's new columns; None when they do not change."""
    guarded: bool
    """Whether the table has the properties that keep other programs from deleting its files."""
    strangers: tuple[str, ...] = ()
    restored: int = 0
    gone: tuple[str, ...] = ()
    """See `Synced`."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        writes = self.added or self.removed or self.plan.note
        return not writes and self.guarded


def _nothing(step: str) -> None:
    del step


def sync(lake: Lake, wanted: LogFiles, step: Callable[[str], None] = _nothing) -> Synced:
    """Makes the table of a topic match the list; see the module. `step` is called after each step, with its
    name, so that tests can crash there: `planned`, `read`, `committed`.

    Raises LakeError, LakeConflictError, and the errors of the catalog.
    """
    topic = TopicName.parse(wanted.topic)
    name = str(table_name(topic))
    for _ in range(_TRIES):
        table = lake.table(topic)
        if table is None and not wanted.files:
            return Synced("none", name)
        change = _work_out(table, wanted, lake)
        step("planned")
        if change.plan.behind:
            return Synced("behind", name)
        step("read")
        if change.gone and _is_behind(lake, topic, wanted):
            # Its objects were deleted as they should be, after this list was read.
            return Synced("behind", name)
        if change.empty:
            return Synced("unchanged", name, strangers=change.strangers, gone=change.gone)
        try:
            snapshot_id = _commit(lake, topic, table, change)
        except (CommitFailedException, TableAlreadyExistsError):
            # Another process committed: planned again from the table's present state.
            continue
        step("committed")
        return Synced(
            "changed",
            name,
            len(change.added),
            len(change.removed),
            snapshot_id,
            change.strangers,
            change.restored,
            change.gone,
        )
    raise LakeError(f"table {name} was changed by others {_TRIES} times in a row; it is tried again")


def _work_out(table: Table | None, wanted: LogFiles, lake: Lake) -> _Change:
    there: dict[str, DataFile] = {}
    known = None
    if table is not None:
        known = seen(table.properties).get(wanted.partition)
        there = {
            file.file_path: file
            for file in files_of(table, table.current_snapshot())
            if file.partition[0] == wanted.partition
        }
    made = plan(wanted, there, known)
    io = lake.catalog._load_file_io(location=lake.settings.warehouse) if table is None else table.io
    added, gone = _opened(io, made.add)
    strangers, restored = _strangers(table, [opened.file.path for opened in added])
    before = None if table is None else table.schema()
    columns = merged(before, [opened.schema for opened in added]) if added else None
    return _Change(
        wanted,
        made,
        added,
        # What a lost file was to replace has its rows yet.
        [] if gone and made.replaces else [there[path] for path in sorted(made.remove)],
        None if columns is before else columns,
        guarded=table is None or GUARDS.items() <= table.properties.items(),
        strangers=strangers,
        restored=restored,
        gone=gone,
    )


def _opened(io: FileIO, files: Iterable[LakeFile]) -> tuple[list[OpenedFile], tuple[str, ...]]:
    """The opened files that exist, and the paths of the missing ones: a lost file does not keep the others
    out of the table."""
    opened, gone = [], []
    for file in files:
        try:
            opened.append(OpenedFile(io, file))
        except FilesGoneError:
            gone.append(file.path)
    return opened, tuple(gone)


def _is_behind(lake: Lake, topic: TopicName, wanted: LogFiles) -> bool:
    table = lake.table(topic)
    known = None if table is None else seen(table.properties).get(wanted.partition)
    return known is not None and wanted.version < known


def _strangers(table: Table | None, added: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Snapshots that other programs have written since our last one, and the number of `added` files that
    they removed."""
    if table is None:
        return (), 0
    found: list[str] = []
    snapshot = table.current_snapshot()
    while snapshot is not None and not _is_ours(snapshot):
        found.append(_described(snapshot))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if not found or snapshot is None:
        # Without our last snapshot it is unknown what they removed.
        return tuple(found), 0
    before = {file.file_path for file in files_of(table, snapshot)}
    return tuple(found), sum(path in before for path in added)


def _is_ours(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(LIST_VERSION) is not None


def _described(snapshot: Snapshot) -> str:
    summary = snapshot.summary
    what = "snapshot" if summary is None else summary.operation.value
    names = ("engine-name", "engine-version", "app-id")
    who = "" if summary is None else " ".join(text for name in names if (text := summary.get(name)))
    return f"{snapshot.snapshot_id} ({what}{f' by {who}' if who else ''})"


def _commit(lake: Lake, topic: TopicName, table: Table | None, change: _Change) -> int | None:
    transaction = _new_table(lake, topic) if table is None else table.transaction()
    if change.columns is not None:
        _add_columns(transaction, change.columns)
    if not change.guarded:
        transaction.set_properties(GUARDS)
    if not change.empty:
        # A snapshot also where properties alone change: only a snapshot's time can be kept in order.
        transaction.set_properties({property_of(change.wanted.partition): change.wanted.version.encode()})
        _write_snapshot(transaction, change)
    if change.plan.expires:
        _expire_others(transaction)
    done = transaction.commit_transaction()
    snapshot = done.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _new_table(lake: Lake, topic: TopicName) -> Transaction:
    """The transaction that makes a table with its commit.

    Catalogs assign new ids to the columns of a new table. So the table begins with one column, and gets the
    columns of its files, with their ids, as a change of the schema in the same commit.
    """
    name = table_name(topic)
    lake.make_namespace(name)
    location = f"{lake.settings.warehouse}/{name.namespace}/{name.table}-{uuid.uuid4().hex[:12]}"
    return lake.catalog.create_table_transaction(
        (name.namespace, name.table),
        Schema(NestedField(1, "ledger_id", LongType(), required=True)),
        location=location,
        properties={**PROPERTIES, TOPIC: str(topic.base)},
    )


def _add_columns(transaction: Transaction, columns: Schema) -> None:
    metadata = transaction.table_metadata
    number = max(schema.schema_id for schema in metadata.schemas) + 1
    transaction._apply(
        (
            AddSchemaUpdate(schema=columns.model_copy(update={"schema_id": number})),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
        )
    )
    if not metadata.spec().fields:
        number = max(spec.spec_id for spec in metadata.partition_specs) + 1
        field = PartitionField(PARTITION_ID, _PARTITION_FIELD_ID, IdentityTransform(), PARTITION)
        transaction._apply(
            (
                AddPartitionSpecUpdate(spec=PartitionSpec(field, spec_id=number)),
                SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
            )
        )


def _write_snapshot(transaction: Transaction, change: _Change) -> None:
    wanted = change.wanted
    ledgers = ",".join(str(opened.file.ledger_id) for opened in change.added)
    notes = {LIST_VERSION: wanted.version.encode(), "magnetar.partition": str(wanted.partition)}
    if ledgers:
        notes["magnetar.ledgers"] = ledgers
    update = transaction.update_snapshot(snapshot_properties=notes)
    spec_id = transaction.table_metadata.default_spec_id
    # One that only records a version is a snapshot too: a process that plans at the same time then meets a
    # conflict.
    producer: _SnapshotProducer[Any]
    if change.plan.replaces:
        producer = ReplaceFiles(transaction, notes)
    elif change.removed or not change.added:
        producer = update.overwrite()
    else:
        producer = update.merge_append()
    with in_order(producer) as snapshot:
        for file in change.removed:
            snapshot.delete_data_file(file)
        for opened in change.added:
            snapshot.append_data_file(opened.described(wanted.partition, spec_id))


def _expire_others(transaction: Transaction) -> None:
    """Expires the snapshots before this one, in the same commit, because their files are about to be deleted.

    Snapshots that a user keeps by a tag or a branch stay, without the files that retention deletes.
    """
    metadata = transaction.table_metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    others = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]
    if others:
        transaction._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": others}),))
