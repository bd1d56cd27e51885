"""A folder with backups. Blocking.

FORMAT                        `magnetar-backup 1`
LOCK                          held by the process that writes
files/<2 hex>/<64 hex>        a file's bytes, by their SHA-256: shared by backups with the same file
backups/<id>.json             a manifest for each backup; written last
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from magnetar.base.errors import StartupError
from magnetar.runtime.durable_file import sync_folder, write_durably
from magnetar.runtime.file_lock import FileLock
from magnetar.server.backup.manifest import BackupError, DamagedBackupError, FileRow, Manifest, decode, encode

_FORMAT: Final = "magnetar-backup 1"
_CHUNK: Final = 1 << 20


class ShorterError(OSError):
    """A file has become shorter."""


class Changed(NamedTuple):
    """The differences between a copy and its source."""

    at: int = 0
    there: bytes = b""
    """Bytes that replace those of the source at offset `at`, in the first chunk."""
    room_bytes: int = 0
    """Number of zeros that are added at the end."""


UNCHANGED: Final = Changed()


class Repository:
    """Backups in one folder. Use `open`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = root / "files"
        self._manifests = root / "backups"

    @classmethod
    def open(cls, root: Path, *, create: bool = False) -> Repository:
        """Opens the repository. Raises BackupError when the folder is not one of ours."""
        try:
            file = root / "FORMAT"
            if create and not file.exists():
                root.mkdir(parents=True, exist_ok=True)
                if any(root.iterdir()):
                    raise BackupError(f"{root} holds other files: name an empty folder, or one with backups")
                write_durably(file, f"{_FORMAT}\n".encode())
            found = file.read_text("ascii", "replace").strip() if file.exists() else ""
            if found != _FORMAT:
                raise BackupError(
                    f"{root} is not a folder with backups that this release knows"
                    + (f" (it says {found!r})" if found else "")
                )
            for folder in (root / "files", root / "backups"):
                folder.mkdir(exist_ok=True)
            sync_folder(root)
        except OSError as error:
            raise BackupError(f"cannot use {root}: {error.strerror}") from error
        return cls(root)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Locks the repository for writing. Raises BackupError while another process writes."""
        try:
            lock = FileLock(self.root / "LOCK", f"the folder with backups {self.root}")
        except StartupError as error:
            raise BackupError(str(error)) from error
        try:
            for part in self._files.glob("*.part"):
                part.unlink()
            yield
        finally:
            lock.release()

    # -- manifests ----------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Ids of the backups, the oldest first."""
        return sorted(path.stem for path in self._manifests.glob("*.json"))

    def manifest(self, backup_id: str | None = None) -> Manifest:
        """The manifest of a backup; None: of the newest. Raises BackupError."""
        known = self.ids()
        if not known:
            raise BackupError(f"{self.root} has no backup yet")
        if (chosen := backup_id or known[-1]) not in known:
            raise BackupError(f"{self.root} has no backup {chosen}; the newest one is {known[-1]}")
        path = self._manifests / f"{chosen}.json"
        return decode(path.read_bytes(), str(path))

    def keep(self, manifest: Manifest) -> None:
        """Lists a backup, whose files must be in the repository."""
        write_durably(self._manifests / f"{manifest.backup_id}.json", encode(manifest))

    def drop(self, backup_ids: list[str]) -> int:
        """Deletes backups and the files that no other backup has; returns the freed bytes.

        Raises BackupError when another backup is damaged; OSError.
        """
        # The other backups are read first: an unreadable one stops the call before anything is deleted.
        kept = set(self.ids()) - set(backup_ids)
        needed = {row.sha256 for each in kept for row in self.manifest(each).files}
        for backup_id in backup_ids:
            (self._manifests / f"{backup_id}.json").unlink()
        sync_folder(self._manifests)
        freed = 0
        for path in self._files.glob("*/*"):
            if path.name not in needed:
                freed += path.stat().st_size
                path.unlink()
        return freed

    # -- files --------------------------------------------------------------------------------

    def path_of(self, sha256: str) -> Path:
        """Path of a file's bytes."""
        return self._files / sha256[:2] / sha256

    def has(self, row: FileRow) -> bool:
        """Whether the repository has the file with this length."""
        try:
            return self.path_of(row.sha256).stat().st_size == row.size_bytes
        except FileNotFoundError:
            return False

    def add(
        self, source: Path, size_bytes: int, copied: Callable[[int], None], changed: Changed = UNCHANGED
    ) -> tuple[str, int]:
        """Adds the first `size_bytes` of a file with the differences `changed`, durably; returns their
        SHA-256 and the number of new bytes.

        The copy is read back and compared, also one that exists already; a damaged one is replaced. Raises
        OSError, ShorterError, DamagedBackupError.
        """
        part = self._files / f"{os.getpid()}.part"
        try:
            with source.open("rb") as read, part.open("wb") as out:
                digest = _copy(read, out, size_bytes, copied, changed)
                out.flush()
                os.fsync(out.fileno())
            target = self.path_of(digest)
            if target.exists() and sum_of(target) == digest:
                return digest, 0
            _forget_cached(part)
            if sum_of(part) != digest:
                raise DamagedBackupError(f"{part} does not hold what was written to it: is that disk sound?")
            if not target.parent.exists():
                target.parent.mkdir()
                sync_folder(self._files)
            part.replace(target)
            sync_folder(target.parent)
        finally:
            part.unlink(missing_ok=True)
        return digest, size_bytes + changed.room_bytes

    def verify(self, manifest: Manifest, read: Callable[[int], None]) -> list[str]:
        """Reads every file of a backup; returns a line for each problem."""
        wrong = []
        for row in manifest.files:
            path = self.path_of(row.sha256)
            if not path.exists():
                wrong.append(f"{row.path}: {path} is missing")
            elif sum_of(path) != row.sha256:
                wrong.append(f"{row.path}: {path} is damaged")
            read(row.size_bytes)
        return wrong


def _copy(
    source: IO[bytes], out: IO[bytes], size_bytes: int, copied: Callable[[int], None], changed: Changed
) -> str:
    """Copies `size_bytes` with the differences `changed`; returns their SHA-256. Raises OSError,
    ShorterError."""
    digest = hashlib.sha256()
    left = size_bytes
    while left:
        chunk = source.read(min(_CHUNK, left))
        if not chunk:
            raise ShorterError(0, f"{source.name} is {left} bytes shorter than it was")
        if left == size_bytes:
            at, there = changed.at, changed.there
            chunk = chunk[:at] + there + chunk[at + len(there) :]
        digest.update(chunk)
        out.write(chunk)
        left -= len(chunk)
        copied(len(chunk))
    out.write(bytes(changed.room_bytes))
    digest.update(bytes(changed.room_bytes))
    return digest.hexdigest()


def copy_checked(source: Path, target: Path, row: FileRow, copied: Callable[[int], None]) -> None:
    """Copies a file of a repository out, durably. Raises DamagedBackupError, OSError."""
    with source.open("rb") as read, target.open("xb") as out:
        found = _copy(read, out, row.size_bytes, copied, UNCHANGED)
        out.flush()
        os.fsync(out.fileno())
    if found != row.sha256:
        raise DamagedBackupError(f"{source} is damaged ({row.path}): use another backup")


def sum_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()


def _forget_cached(path: Path) -> None:
    """Asks the kernel to drop cached pages, so that the next read comes from the device."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
