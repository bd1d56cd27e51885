"""From a staged point in time into a repository. Blocking."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import magnetar
from magnetar.bookie.segment import PAGE_BYTES
from magnetar.server.backup.manifest import BackupError, DamagedBackupError, FileRow, Manifest
from magnetar.server.backup.repository import Repository
from magnetar.server.backup.staging import STAGED_FILE

_log = logging.getLogger("magnetar.backup")


def copy(
    staged: Path, repository: Repository, *, with_history: bool, progress: Callable[[int], None]
) -> Manifest:
    """Copies what the repository has not, and lists the backup. Raises BackupError.

    `progress` hears of each piece of bytes that was read.
    """
    note = json.loads((staged / STAGED_FILE).read_text())
    known = _known(repository)
    rows: list[FileRow] = []
    brought = 0
    try:
        for path in _files(staged, with_history=with_history):
            name = path.relative_to(staged).as_posix()
            stat = path.stat()
            growing = path.name == note["growing"]
            size = note["growing_bytes"] if growing else stat.st_size
            # Sealed segments and objects never change; a rewritten segment is a new file with a later time.
            origin = "" if growing or not _is_final(name) else f"{name} {size} {stat.st_mtime_ns}"
            found = known.get(origin) if origin else None
            if found is not None and repository.has(found):
                rows.append(FileRow(name, found.sha256, size, origin))
                progress(size)
                continue
            room = _room_behind(size) if growing else 0
            digest, new = repository.add(path, size, progress, room_bytes=room)
            brought += new
            rows.append(FileRow(name, digest, size + room, origin))
    except OSError as error:
        raise BackupError(f"the backup could not be written: {error.strerror or error}") from error
    manifest = Manifest(
        backup_id=_new_id(repository, note["created_ms"]),
        created_ms=note["created_ms"],
        version=magnetar.__version__,
        files=tuple(sorted(rows, key=lambda row: row.path)),
        copied_bytes=brought,
    )
    repository.keep(manifest)
    return manifest


def bytes_of(staged: Path, *, with_history: bool) -> int:
    """What `copy` will read, about."""
    return sum(path.stat().st_size for path in _files(staged, with_history=with_history))


def _known(repository: Repository) -> dict[str, FileRow]:
    """What the newest backup that can be read has of what never changes, by its origin."""
    for backup_id in reversed(repository.ids()):
        try:
            manifest = repository.manifest(backup_id)
        except DamagedBackupError as error:
            _log.warning("%s; this backup does without it", error)
            continue
        return {row.origin: row for row in manifest.files if row.origin}
    return {}


def _room_behind(end: int) -> int:
    """A segment that waits for blocks has free ones, and whole pages: one that ends with its log was cut."""
    return PAGE_BYTES - end % PAGE_BYTES


def _files(staged: Path, *, with_history: bool) -> Iterator[Path]:
    for path in sorted(staged.rglob("*")):
        if not path.is_file() or path.name == STAGED_FILE:
            continue
        if with_history or path.relative_to(staged).parts[0] != "offloaded":
            yield path


def _is_final(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "offloaded" or "segments" in parts[1:3]


def _new_id(repository: Repository, created_ms: int) -> str:
    at = datetime.fromtimestamp(created_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    taken = [each for each in repository.ids() if each.split("-")[0] == at]
    return f"{at}-{len(taken) + 1}" if taken else at
