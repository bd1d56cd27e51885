"""Values that the broker's process and the lake's worker exchange, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId


class LakeError(StorageError):
    """A table could not be read or changed. `retriable`: the same call may succeed later."""

    retriable = True


class LakeSetupError(LakeError):
    """The catalog or the libraries are set up wrongly: a retry does not help."""

    retriable = False


class FilesGoneError(LakeError):
    """Objects that a stored list names do not exist: their messages cannot be read."""


class LakeConflictError(LakeError):
    """The existing table contradicts the change: it is another topic's, or has a column of another type."""

    retriable = False


@dataclass(frozen=True, slots=True, order=True)
class ListVersion:
    """The state of a log's stored list that a table has seen. Fields are compared in this order; see
    `planning.py`."""

    created_ms: int
    """Unix ms at which the list was made. A topic that is deleted and made again has a new list."""
    version: int
    """Version of the stored value."""
    retired: int = 0
    """1 when objects that this version still names are about to be deleted, else 0."""

    def encode(self) -> str:
        """`created:version:retired`."""
        return f"{self.created_ms}:{self.version}:{self.retired}"

    @classmethod
    def decode(cls, text: str) -> ListVersion:
        """The inverse of `encode`. Raises ValueError."""
        created, version, retired = text.split(":")
        return cls(int(created), int(version), int(retired))


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One object of a complete copy."""

    path: str
    """Path in Iceberg's metadata; see `locations.py`."""
    file_bytes: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files that a table must have of one log: exactly those that the stored list names."""

    topic: str
    """Full name without the partition."""
    partition: int
    """-1 when the topic has no partitions."""
    version: ListVersion
    files: tuple[LakeFile, ...]
    replaced: frozenset[str] = frozenset()
    """Paths of files that merged files have replaced, and that are deleted later."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "version": self.version.encode(),
            "files": [[file.path, file.file_bytes, file.ledger_id] for file in self.files],
            "replaced": sorted(self.replaced),
        }

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> LogFiles:
        """The inverse of `to_json`."""
        return cls(
            made["topic"],
            made["partition"],
            ListVersion.decode(made["version"]),
            tuple(LakeFile(*file) for file in made["files"]),
            frozenset(made["replaced"]),
        )


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Settings with which the worker opens the catalog and the files. Credentials are in the environment
    only."""

    properties: Mapping[str, str]
    """Properties for pyiceberg, including `uri` and `warehouse`."""
    warehouse: str
    """Location of new tables, without a slash at the end."""
    name: str = "magnetar"

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> CatalogSettings:
        """The inverse of `to_json`."""
        return cls(**made)


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of one change of a table."""

    outcome: str
    """`changed`, `unchanged`, `behind` (the table has seen a later list) or `none` (no table exists)."""
    table: str
    added: int = 0
    removed: int = 0
    snapshot_id: int | None = None
    strangers: tuple[str, ...] = ()
    """Snapshots of other writers since our last one: operation, time, writer."""
    restored: int = 0
    """Number of files that these snapshots removed and that were added again."""
    gone: tuple[str, ...] = ()
    """Paths that the stored list names and whose objects do not exist."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of a table."""

    table: str
    location: str
    metadata_location: str
    files: int
    file_bytes: int
    rows: int
    snapshots: int
    snapshot_id: int | None
    snapshot_ms: int | None
    schema_id: int
    columns: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """`ListVersion` by partition."""
