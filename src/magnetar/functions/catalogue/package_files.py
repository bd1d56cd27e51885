"""The folder of uploaded files. Each is written, synced and renamed before a record names it.

    FOLDER/ID/NAME              a file; ID is 32 hexadecimal digits, NAME as the client sent it
    FOLDER/incoming-ID/NAME     a file that is still arriving; removed at the next start
    FOLDER/unnamed-ID/NAME      a file that no record names; removed after a grace period

A file belongs to one record. A crash between the two leaves a file without a record, never the reverse.
Such a file is put aside first, because the records may be those of an older backup; if a record names it
again, it is put back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from magnetar.functions.refusals import (
    DamagedPackageError,
    PackageNotFoundError,
    PackagesFullError,
    PackageTooLargeError,
)
from magnetar.runtime.durable_file import settle_folder, sync_folder
from magnetar.runtime.threads import in_thread

_Result = TypeVar("_Result")

MIB: Final = 1 << 20
_PIECE_BYTES: Final = MIB
"""Bytes that are written at a time."""
_ARRIVING_MAX: Final = 8
"""Most files that arrive at the same time."""
_FREE_BYTES_MIN: Final = 128 * MIB
"""Bytes that stay free on the disk: messages and metadata need them more."""
UNNAMED_S: Final = 604_800
"""Seconds for which a file that no record names is kept."""
_ID: Final = re.compile(r"[0-9a-f]{32}")
_ARRIVING: Final = "incoming-"
_UNNAMED: Final = "unnamed-"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the folder."""

    file_id: str
    name: str
    bytes: int
    sha256: str

    def document(self) -> dict[str, object]:
        """For a record."""
        return {"file": self.file_id, "name": self.name, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def of(cls, document: object) -> StoredFile:
        """From a record. Raises ValueError."""
        if not isinstance(document, Mapping):
            raise ValueError("a file is not an object")
        file_id, name, size, digest = (document.get(field) for field in ("file", "name", "bytes", "sha256"))
        if not (isinstance(file_id, str) and _ID.fullmatch(file_id)):
            raise ValueError("file is not an id of a file")
        if not (isinstance(name, str) and name and "/" not in name and "\0" not in name and name[0] != "."):
            raise ValueError("name is not a name of a file")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError("bytes is not a size")
        if not isinstance(digest, str):
            raise ValueError("sha256 is not a text")
        return cls(file_id, name, size, digest)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """How much may be uploaded."""

    file_bytes_max: int = 128 * MIB
    """Bytes of one file."""
    all_bytes_max: int = 4096 * MIB
    """Bytes of all files together."""


class Arriving:
    """A file that arrives. `write`, then `finish` or `discard`."""

    def __init__(self, files: PackageFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._id = secrets.token_hex(16)
        self._folder = files.folder / f"{_ARRIVING}{self._id}"
        self._pending = bytearray()
        self._hash = hashlib.sha256()
        self.bytes = 0
        self._counted = 0

    async def write(self, data: bytes) -> None:
        """Adds bytes. Raises PackageTooLargeError, PackagesFullError; then only `discard` may follow."""
        self.bytes += len(data)
        limits = self._files.limits
        if self.bytes > limits.file_bytes_max:
            raise PackageTooLargeError(
                f"the file is larger than {limits.file_bytes_max} bytes",
                remedy="make it smaller, or have an operator raise function_package_bytes_max",
            )
        self._counted += len(data)
        self._files.count(len(data))
        self._pending += data
        if len(self._pending) >= _PIECE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        await self._files.in_folder(lambda: self._append(pending))

    def _append(self, data: bytearray) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._hash.update(data)
        with (self._folder / self.name).open("ab") as out:
            out.write(data)

    async def finish(self) -> StoredFile:
        """The file, durable. Raises PackagesFullError."""
        await self._flush()
        await self._files.in_folder(self._settle)
        self._files.arrived(self)
        return StoredFile(self._id, self.name, self.bytes, self._hash.hexdigest())

    def _settle(self) -> None:
        if self._files.durable:
            fd = os.open(self._folder / self.name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_folder(self._folder)
        self._folder.replace(self._files.folder / self._id)
        if self._files.durable:
            sync_folder(self._files.folder)

    async def discard(self) -> None:
        """Removes what has arrived."""
        self._files.arrived(self)
        self._files.uncount(self._counted)
        await in_thread(shutil.rmtree, self._folder, ignore_errors=True)


class PackageFiles:
    """The folder. `open` first."""

    def __init__(self, folder: Path, limits: FileLimits, *, durable: bool = True) -> None:
        """`durable`: files are synced; false where nothing is kept."""
        self.folder = folder
        self.limits = limits
        self.durable = durable
        self.bytes = 0
        """Bytes of all files, those that arrive too."""
        self._arriving: set[Arriving] = set()

    async def open(self, named: Collection[str], now_s: Callable[[], float] = time.time) -> int:
        """Makes the folder if need be, and puts files in order; `named`: ids that records name.

        Returns the number of files that no record names. Raises PackagesFullError, OSError.
        """
        self.bytes, unnamed = await self.in_folder(lambda: self._tidy(frozenset(named), now_s()))
        return unnamed

    def _tidy(self, named: frozenset[str], now_s: float) -> tuple[int, int]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.durable:
            settle_folder(self.folder)
        total = unnamed = 0
        for folder in sorted(self.folder.iterdir()):
            kind, _, file_id = folder.name.rpartition("-")
            if kind == _ARRIVING[:-1]:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            if not _ID.fullmatch(file_id):
                continue  # Not of ours.
            if file_id not in named:
                if kind and now_s - folder.stat().st_mtime > UNNAMED_S:
                    shutil.rmtree(folder, ignore_errors=True)
                    continue
                unnamed += 1
                if not kind:
                    os.utime(folder, (now_s, now_s))
                    folder = folder.rename(self.folder / f"{_UNNAMED}{file_id}")
            elif kind:
                folder = folder.rename(self.folder / file_id)
            total += sum(file.stat().st_size for file in folder.iterdir())
        return total, unnamed

    # -- writing

    def begin(self, name: str) -> Arriving:
        """A file that is going to arrive; `name` is from `file_name_of`. Raises PackagesFullError."""
        if len(self._arriving) >= _ARRIVING_MAX:
            raise PackagesFullError(f"{_ARRIVING_MAX} files arrive at this time", remedy="try again")
        arriving = Arriving(self, name)
        self._arriving.add(arriving)
        return arriving

    def arrived(self, arriving: Arriving) -> None:
        """Frees its place."""
        self._arriving.discard(arriving)

    def count(self, size: int) -> None:
        """Counts bytes. Raises PackagesFullError."""
        self.bytes += size
        if self.bytes > self.limits.all_bytes_max:
            raise PackagesFullError(
                f"all files of functions together would be larger than {self.limits.all_bytes_max} bytes",
                remedy="delete packages, or have an operator raise function_packages_bytes_max",
            )

    def uncount(self, size: int) -> None:
        """Counts bytes that are gone."""
        self.bytes = max(0, self.bytes - size)

    async def in_folder(self, work: Callable[[], _Result]) -> _Result:
        """Runs blocking work of the folder in a thread. Raises PackagesFullError in place of a full disk."""

        def watched() -> _Result:
            try:
                if self.folder.exists():
                    free = os.statvfs(self.folder)
                    if free.f_bavail * free.f_frsize < _FREE_BYTES_MIN:
                        raise OSError(errno.ENOSPC, f"less than {_FREE_BYTES_MIN} bytes are free")
                return work()
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise PackagesFullError(
                        f"the disk of {self.folder} is full: {error.strerror}", remedy="free some space"
                    ) from error
                raise

        return await in_thread(watched)

    async def linked(self, file: StoredFile) -> StoredFile:
        """A second file with the same bytes, which needs no space. Raises DamagedPackageError,
        PackagesFullError."""
        await self.checked(file)
        self.count(file.bytes)
        made = StoredFile(secrets.token_hex(16), file.name, file.bytes, file.sha256)

        def link() -> None:
            arriving = self.folder / f"{_ARRIVING}{made.file_id}"
            arriving.mkdir(mode=0o700)
            (arriving / made.name).hardlink_to(self.path(file))
            if self.durable:
                sync_folder(arriving)
            arriving.replace(self.folder / made.file_id)
            if self.durable:
                sync_folder(self.folder)

        try:
            await self.in_folder(link)
        except BaseException:
            self.uncount(file.bytes)
            raise
        return made

    async def remove(self, file: StoredFile) -> None:
        """Removes a file that no record names any more."""
        self.uncount(file.bytes)
        await in_thread(shutil.rmtree, self.path(file).parent, ignore_errors=True)

    # -- reading

    def path(self, file: StoredFile) -> Path:
        """Where a file lies."""
        return self.folder / file.file_id / file.name

    async def checked(self, file: StoredFile) -> Path:
        """Where a file lies, after its bytes were compared with what was uploaded. Raises
        PackageNotFoundError, DamagedPackageError."""
        path = self.path(file)
        try:
            found = await in_thread(_digest, path)
        except FileNotFoundError as error:
            raise PackageNotFoundError(
                f"the file {file.name} is not in {self.folder} any more", remedy="upload it again"
            ) from error
        except OSError as error:
            raise DamagedPackageError(f"{path} cannot be read: {error.strerror}") from error
        if found != file.sha256:
            raise DamagedPackageError(
                f"{path} does not hold what was uploaded",
                remedy="upload it again, or restore it from a backup",
            )
        return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
