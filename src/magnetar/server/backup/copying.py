"""From a staged point in time into a repository. Blocking."""

from __future__ import annotations

import errno
import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import magnetar
from magnetar.bookie.segment import (
    CHECKPOINT_AT,
    CHECKPOINT_BYTES,
    HEADER_READ_BYTES,
    PAGE_BYTES,
    decode_segment_header,
    encode_checkpoint,
)
from magnetar.server.backup.manifest import BackupError, DamagedBackupError, FileRow, Manifest
from magnetar.server.backup.repository import Changed, Repository, ShorterError
from magnetar.server.backup.staging import STAGED_FILE

_log = logging.getLogger("magnetar.backup")

_SETTLED_S: Final = 30.0
"""A file that does not change at last changes for so long at the most."""


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
            if name in note["growing"]:
                row, new = _copy_growing(path, name, note["growing"][name], repository, progress)
            else:
                row, new = _copy_whole(path, name, known, repository, progress)
            brought += new
            rows.append(row)
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


def _copy_growing(
    path: Path, name: str, end: int, repository: Repository, progress: Callable[[int], None]
) -> tuple[FileRow, int]:
    """A segment that is written to, as it was when its log went to `end`."""
    with path.open("rb") as segment:
        header = decode_segment_header(segment.read(HEADER_READ_BYTES))
    # What the header says by now may be of later blocks, which the copy would miss as damage.
    checkpoint = bytes(CHECKPOINT_BYTES) if header is None else encode_checkpoint(header.salt, end)
    changed = Changed(CHECKPOINT_AT, checkpoint, _room_behind(end))
    digest, new = repository.add(path, end, progress, changed)
    return FileRow(name, digest, end + changed.room_bytes), new


def _copy_whole(
    path: Path, name: str, known: dict[str, FileRow], repository: Repository, progress: Callable[[int], None]
) -> tuple[FileRow, int]:
    """Any other file; one that is `known` is not copied again."""
    deadline_s = time.monotonic() + _SETTLED_S
    while True:
        stat = path.stat()
        size = stat.st_size
        # Sealed segments and objects never change; a rewritten segment is a new file with a later time.
        origin = f"{name} {size} {stat.st_mtime_ns}" if _is_final(name) else ""
        found = known.get(origin) if origin else None
        if found is not None and repository.has(found):
            progress(size)
            return FileRow(name, found.sha256, size, origin), 0
        try:
            digest, new = repository.add(path, size, progress)
        except ShorterError:
            if time.monotonic() > deadline_s:
                raise
            continue
        after = path.stat()
        # A segment that was full a moment ago is being sealed: it is cut off and gets its footer.
        if (after.st_size, after.st_mtime_ns) == (size, stat.st_mtime_ns):
            return FileRow(name, digest, size, origin), new
        if time.monotonic() > deadline_s:
            raise OSError(errno.EAGAIN, f"{path} changes all the time")


def bytes_of(staged: Path, *, with_history: bool) -> int:
    """What `copy` will read, about."""
    return sum(path.stat().st_size for path in _files(staged, with_history=with_history))


def _known(repository: Repository) -> dict[str, FileRow]:
    """What the newest backup that can be read has of what never changes, by its origin."""
    for backup_id in reversed(repository.ids()):
        try:
            manifest = repository.manifest(backup_id)
        except DamagedBackupError as error:
            # The backup before it may be whole; without any, everything is copied.
            _log.warning("%s; this backup does not have it", error)
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
