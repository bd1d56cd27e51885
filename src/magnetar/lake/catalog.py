"""Opens the catalog and reads its tables. `syncing.py` and `upkeep.py` change tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from magnetar.base.names import TopicName
from magnetar.lake.lake_values import CatalogSettings, LakeConflictError, LakeError, LakeSetupError
from magnetar.lake.naming import TableName, table_name
from magnetar.lake.planning import TOPIC

_T = TypeVar("_T")

GUARDS: Final = {
    # Files of a table are the brokers' only copy. Without this, expiry of snapshots, deletion of orphans and
    # DROP TABLE … PURGE by Iceberg's own procedures delete them.
    "gc.enabled": "false",
}
"""Properties of every table; each commit restores missing or changed ones."""

PROPERTIES: Final = {
    **GUARDS,
    "format-version": "2",
    # Old versions of a table's own description are deleted automatically.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # A snapshot per offload makes a manifest per offload; many small ones become few.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    # The change is computed again after each conflict: pyiceberg must not retry the old plan.
    "commit.retry.num-retries": "0",
}
"""Initial properties of every table."""


class Lake:
    """The catalog with the tables of topics."""

    def __init__(self, settings: CatalogSettings) -> None:
        """Opens the catalog. Raises LakeSetupError, LakeError."""
        self.settings = settings
        self.catalog: Catalog = self._open()
        self._namespaces: set[str] = set()

    def _open(self) -> Catalog:
        try:
            return load_catalog(self.settings.name, **self.settings.properties)
        except Exception:  # noqa: BLE001  # of every kind of catalog and driver
            # Two programs that open a new database at the same time both make its tables: the loser tries
            # again.
            pass
        try:
            return load_catalog(self.settings.name, **self.settings.properties)
        except Exception as error:
            raise LakeSetupError(f"the catalog cannot be opened: {type(error).__name__}: {error}") from error

    def table(self, topic: TopicName) -> Table | None:
        """The present table of a topic; None when there is none. Raises LakeConflictError when the table of
        this name belongs to another topic."""
        name = table_name(topic)
        try:
            table = self.catalog.load_table((name.namespace, name.table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        owner = table.properties.get(TOPIC)
        if owner != str(topic.base):
            raise LakeConflictError(
                f"table {name} is of {owner or 'another program'}, not of {topic.base}:"
                " rename or drop it, or use another catalog"
            )
        return table

    def make_namespace(self, name: TableName) -> None:
        """Makes the namespace of a table unless it exists."""
        if name.namespace not in self._namespaces:
            with contextlib.suppress(NamespaceAlreadyExistsError):  # another process made it first
                self.catalog.create_namespace(name.namespace)
            self._namespaces.add(name.namespace)

    def topics(self) -> list[str]:
        """Full names of the topics that have a table, sorted."""
        found = []
        for namespace in self.catalog.list_namespaces():
            for identifier in self.catalog.list_tables(namespace):
                try:
                    table = self.catalog.load_table(identifier)
                except NoSuchTableError:  # dropped since the listing
                    continue
                if (topic := table.properties.get(TOPIC)) is not None:
                    found.append(topic)
        return sorted(found)


def files_of(table: Table, snapshot: Snapshot | None) -> Iterable[DataFile]:
    """The data files of a snapshot."""
    if snapshot is not None:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def translated(work: Callable[[], _T]) -> _T:
    """Runs `work` and returns its result. All errors of libraries and stores become LakeError."""
    try:
        return work()
    except LakeError:
        raise
    except Exception as error:  # pyiceberg's errors have no common class, nor have drivers'
        raise LakeError(f"{type(error).__name__}: {error}") from error
