"""Copies a staged point in time into a repository. Blocking."""

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
"""Most seconds for which a file that is being finished still changes."""


def copy(
    staged: Path, repository: Repository, *, with_history: bool, progress: Callable[[int], None]
) -> Manifest:
    """Copies the files that the repository lacks, and lists the backup. Raises BackupError.

    `progress` is called with the number of bytes of each piece that was read.
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
    """Copies a segment in use up to byte `end` of its log."""
    with path.open("rb") as segment:
        header = decode_segment_header(segment.read(HEADER_READ_BYTES))
    # The header may describe later blocks by now, whose absence in the copy would look like damage.
    checkpoint = bytes(CHECKPOINT_BYTES) if header is None else encode_checkpoint(header.salt, end)
    changed = Changed(CHECKPOINT_AT, checkpoint, _room_behind(end))
    digest, new = repository.add(path, end, progress, changed)
    return FileRow(name, digest, end + changed.room_bytes), new


def _copy_whole(
    path: Path, name: str, known: dict[str, FileRow], repository: Repository, progress: Callable[[int], None]
) -> tuple[FileRow, int]:
    """Copies another file, unless it is `known`."""
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
    """The approximate number of bytes that `copy` will read."""
    return sum(path.stat().st_size for path in _files(staged, with_history=with_history))


def _known(repository: Repository) -> dict[str, FileRow]:
    """By origin: the unchangeable files of the newest readable backup."""
    for backup_id in reversed(repository.ids()):
        try:
            manifest = repository.manifest(backup_id)
        except DamagedBackupError as error:
            # An earlier backup may be readable; without any, all files are copied.
            _log.warning("%s; this backup does not have it", error)
            continue
        return {row.origin: row for row in manifest.files if row.origin}
    return {}


def _room_behind(end: int) -> int:
    """Bytes of zeros after `end`: an open segment must have space for blocks and end with a whole page, since
    a segment that ends with its log counts as truncated."""
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
