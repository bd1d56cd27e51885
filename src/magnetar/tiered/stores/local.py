"""Objects as files of a folder."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from magnetar.runtime.durable_file import settle_folder, sync_folder, write_durably
from magnetar.runtime.file_lock import alone
from magnetar.runtime.threads import in_thread
from magnetar.tiered.errors import (
    DamagedObjectError,
    MissingObjectError,
    StoreError,
    StoreSetupError,
    SwapLostError,
)
from magnetar.tiered.stores.object_store import StoredObject, Tagged

_UNFINISHED: Final = ".unfinished"
"""Suffix of a file's name while it is written. A file that a crash left is listed with the others and deleted
as an orphan."""
_LOCK: Final = ".lock"
"""Suffix of the name of the file that is locked while a small object is changed."""
_LISTED_AT_ONCE: Final = 500

_T = TypeVar("_T")


class LocalStore:
    """A folder on a disk, or on a network file system."""

    def __init__(self, root: Path) -> None:
        """`root`: the store's folder; the first write makes it."""
        self._root = root.absolute()
        self._settled = False

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def _path(self, name: str) -> Path:
        path = self._root / name
        if not name or name.startswith("/") or ".." in Path(name).parts:
            raise StoreSetupError(
                name, "this is not a name of an object", "objects lie below the store's folder"
            )
        return path

    async def _do(self, name: str, work: Callable[[], _T]) -> _T:
        try:
            return await in_thread(work)
        except FileNotFoundError as error:
            raise MissingObjectError(
                f"{self._root / name}",
                "the file is not there",
                "restore it from a backup, or mount the disk that holds it",
            ) from error
        except PermissionError as error:
            raise StoreSetupError(
                f"{self._root / name}", "permission denied", "give the broker's user access to the folder"
            ) from error
        except OSError as error:
            step = "it is tried again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                step = "free some space or choose another folder with offload_url"
            raise StoreError(f"{self._root / name}", error.strerror or str(error), step) from error

    async def put(self, name: str, file: Path) -> None:
        path = self._path(name)
        await self._do(name, lambda: _copy_durably(file, path, self._root))
        if not self._settled:
            # Without its own name nothing in it would be found again.
            await self._do(name, lambda: settle_folder(self._root))
            self._settled = True

    async def get(self, name: str, start: int, length: int) -> bytes:
        path = self._path(name)

        def read() -> bytes:
            with path.open("rb", buffering=0) as stream:
                return os.pread(stream.fileno(), length, start)

        data = await self._do(name, read)
        if len(data) != length:
            raise DamagedObjectError(
                str(path), f"it ends at byte {start + len(data)}, {start + length} are needed"
            )
        return data

    async def size(self, name: str) -> int:
        path = self._path(name)
        return await self._do(name, lambda: path.stat().st_size)

    async def read(self, name: str) -> Tagged | None:
        path = self._path(name)

        def work() -> Tagged | None:
            try:
                return _tagged(path.read_bytes())
            except FileNotFoundError:
                return None

        return await self._do(name, work)

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        path = self._path(name)

        def work() -> bool:
            path.parent.mkdir(parents=True, exist_ok=True)
            with alone(path.with_name(path.name + _LOCK)):
                try:
                    there = _tagged(path.read_bytes()).tag
                except FileNotFoundError:
                    there = None
                if there != known:
                    return False
                write_durably(path, data)
                return True

        if not await self._do(name, work):
            raise SwapLostError(str(path), "another process has changed it", "look at it again")

    async def list(self, folder: str) -> AsyncIterator[StoredObject]:
        top = self._path(folder) if folder else self._root
        files = _files(top)
        while found := await self._do(folder, lambda: _some(files, self._root)):
            for each in found:
                yield each

    async def delete(self, name: str) -> None:
        path = self._path(name)
        await self._do(name, lambda: _delete(path, self._root))

    def file_of(self, name: str) -> Path | None:
        return self._path(name)

    async def close(self) -> None:
        """Does nothing: the store holds no resources."""


def _tagged(data: bytes) -> Tagged:
    return Tagged(data, sha256(data).hexdigest())


def _copy_durably(file: Path, path: Path, root: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        unfinished.unlink(missing_ok=True)
        try:
            # On the same disk nothing need be copied.
            unfinished.hardlink_to(file)
        except OSError:
            shutil.copyfile(file, unfinished)
        with unfinished.open("rb") as target:
            os.fsync(target.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    # The folder's name as well, where it was made now: up to the root, whose own name `put` makes durable.
    folder = path.parent
    while True:
        sync_folder(folder)
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def _files(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        for name in names:
            yield Path(folder) / name


def _some(files: Iterator[Path], root: Path) -> list[StoredObject]:
    found = []
    for path in files:
        try:
            status = path.stat()
        except FileNotFoundError:  # deleted since the listing
            continue
        name = path.relative_to(root).as_posix()
        found.append(StoredObject(name, status.st_size, status.st_mtime_ns // 1_000_000))
        if len(found) == _LISTED_AT_ONCE:
            break
    return found


def _delete(path: Path, root: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(path.name + _UNFINISHED).unlink(missing_ok=True)
    # Folders of topics that are gone; one that another object came into meanwhile stays.
    for folder in path.parents:
        if folder == root or root not in folder.parents:
            return
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone: either way the folders above stay
            return
