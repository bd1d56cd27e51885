"""What the broker's process and the lake's worker tell each other. Values only; JSON on the wire."""

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
    """The catalog or the libraries are not as they should be: no use in trying again."""

    retriable = False


class FilesGoneError(LakeError):
    """Objects that a stored list names are not there: their messages cannot be read."""


class LakeConflictError(LakeError):
    """What is there contradicts what is to be written: a table of another topic, a column of another type."""

    retriable = False


@dataclass(frozen=True, slots=True, order=True)
class ListVersion:
    """Which state of a log's stored list a table has seen. Compared in this order; see `planning.py`."""

    created_ms: int
    """When the list was made: a topic that is deleted and made again begins a new one."""
    version: int
    """Version of the stored value."""
    retired: int = 0
    """1 when objects that this version still names are about to be deleted."""

    def encode(self) -> str:
        """`created:version:retired`."""
        return f"{self.created_ms}:{self.version}:{self.retired}"

    @classmethod
    def decode(cls, text: str) -> ListVersion:
        """Raises ValueError."""
        created, version, retired = text.split(":")
        return cls(int(created), int(version), int(retired))


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One object of a complete copy."""

    path: str
    """As Iceberg's metadata names it; see `locations.py`."""
    file_bytes: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What a table is to have of one log: everything that the stored list names, nothing else."""

    topic: str
    """Full name without the partition."""
    partition: int
    """-1 when the topic has no partitions."""
    version: ListVersion
    files: tuple[LakeFile, ...]
    replaced: frozenset[str] = frozenset()
    """Paths of files whose rows others have now, and that stay for a while."""

    def to_json(self) -> dict[str, Any]:
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
    """How the worker opens the catalog and the files. Holds no credentials: those are in the environment."""

    properties: Mapping[str, str]
    """As pyiceberg takes them, `uri` and `warehouse` among them."""
    warehouse: str
    """Where tables are made, without a slash at the end."""
    name: str = "magnetar"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> CatalogSettings:
        """The inverse of `to_json`."""
        return cls(**made)


@dataclass(frozen=True, slots=True)
class Synced:
    """What came of one change of a table."""

    outcome: str
    """`changed`, `unchanged`, `behind` (the table has seen a later list) or `none` (there is no table)."""
    table: str
    added: int = 0
    removed: int = 0
    snapshot_id: int | None = None
    strangers: tuple[str, ...] = ()
    """Snapshots of other writers since our last one: operation, time, writer."""
    restored: int = 0
    """Files that these took from the table, and that are in it again."""
    gone: tuple[str, ...] = ()
    """Paths that the stored list names and whose objects are not there."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as it is."""

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
