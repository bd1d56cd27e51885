"""The manifest of a backup, which lists its files. Values only.

A manifest is a file `backups/ID.json` of a repository: a line of JSON, and a line with its SHA-256 in hex.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

from magnetar.base.errors import MagnetarError

FORMAT_VERSION: Final = 1


class BackupError(MagnetarError):
    """A backup or restore cannot be done; the message names the cause and the next step."""


class DamagedBackupError(BackupError):
    """A file in a repository is damaged."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file of a backup."""

    path: str
    """Path in the data folder, with `/`."""
    sha256: str
    """SHA-256 in hex, which is the file's name in the repository."""
    size_bytes: int
    origin: str = ""
    """Name, length and time of an unchangeable file, by which a later backup recognises it; empty: the file
    may change."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup."""

    backup_id: str
    """Time of the backup, UTC, `20260131T235959Z`; a number follows when several have the same time."""
    created_ms: int
    """Unix milliseconds of the point in time."""
    version: str
    """Version of the program."""
    files: tuple[FileRow, ...]
    copied_bytes: int
    """Bytes that this backup added to the repository."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, including those that earlier backups copied."""
        return sum(row.size_bytes for row in self.files)


def encode(manifest: Manifest) -> bytes:
    """The bytes of the manifest's file."""
    line = json.dumps({"format": FORMAT_VERSION, **asdict(manifest)}, sort_keys=True).encode()
    return b"%b\n%b\n" % (line, hashlib.sha256(line).hexdigest().encode())


def decode(data: bytes, name: str) -> Manifest:
    """The manifest from the bytes of the file `name`. Raises DamagedBackupError, BackupError."""
    line, _, rest = data.partition(b"\n")
    if rest.strip().decode("ascii", "replace") != hashlib.sha256(line).hexdigest():
        raise DamagedBackupError(f"{name} fails its checksum: use another backup")
    told = json.loads(line)
    if (found := told.pop("format")) > FORMAT_VERSION:
        raise BackupError(
            f"{name} has format {found}, this release knows up to {FORMAT_VERSION}: use the newer release"
        )
    told["files"] = tuple(FileRow(**row) for row in told["files"])
    return Manifest(**told)
