"""Hadoop's file system, through pyarrow and the libhdfs of the machine.

The variables `HADOOP_HOME`, `JAVA_HOME` and `CLASSPATH` name libhdfs and its Java, as pyarrow documents.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from pyarrow import fs

from magnetar.runtime.threads import in_thread
from magnetar.tiered.errors import DamagedObjectError, MissingObjectError, StoreError, SwapLostError
from magnetar.tiered.stores.object_store import StoredObject, Tagged

_UNFINISHED: Final = ".unfinished"
_CHANGES_KEPT: Final = 8
"""Number of former versions of a small object that are kept, for readers that have just looked up their
names."""

_T = TypeVar("_T")


class HdfsStore:
    """A folder of a file system that pyarrow knows."""

    def __init__(self, url: str, files: fs.FileSystem, root: str) -> None:
        """`files` is a pyarrow FileSystem, `root` the folder in it."""
        self._url = url
        self._files = files
        self._root = root.rstrip("/")

    @property
    def url(self) -> str:
        return self._url

    async def _do(self, name: str, work: Callable[[], _T]) -> _T:
        try:
            return await in_thread(work)
        except FileNotFoundError as error:
            raise MissingObjectError(
                f"{name} in {self._url}", "the file is not there", "restore it from a backup"
            ) from error
        except OSError as error:
            raise StoreError(f"{name} in {self._url}", str(error), "it is tried again") from error

    async def put(self, name: str, file: Path) -> None:
        path = f"{self._root}/{name}"

        def write() -> None:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with file.open("rb") as source, self._files.open_output_stream(path + _UNFINISHED) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            self._files.move(path + _UNFINISHED, path)

        await self._do(name, write)

    async def get(self, name: str, start: int, length: int) -> bytes:
        def read() -> bytes:
            with self._files.open_input_file(f"{self._root}/{name}") as stream:
                return bytes(stream.read_at(length, start))

        data = await self._do(name, read)
        if len(data) != length:
            raise DamagedObjectError(
                f"{name} in {self._url}", f"it ends at byte {start + len(data)}, {start + length} are needed"
            )
        return data

    async def size(self, name: str) -> int:
        info = await self._do(name, lambda: self._files.get_file_info(f"{self._root}/{name}"))
        if info.type != fs.FileType.File:
            raise MissingObjectError(
                f"{name} in {self._url}", "the file is not there", "restore it from a backup"
            )
        return int(info.size)

    async def read(self, name: str) -> Tagged | None:
        number = await self._newest(name)
        if number is None:
            return None

        def work() -> bytes:
            with self._files.open_input_file(self._change(name, number)) as stream:
                return bytes(stream.read())

        try:
            return Tagged(await self._do(name, work), str(number))
        except MissingObjectError:
            # Deleted by another writer meanwhile.
            return await self.read(name)

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        """See `ObjectStore.swap`. Every change is a file with the next number, which only one writer can
        create."""
        number = 0 if known is None else int(known) + 1
        if await self._newest(name) != (None if known is None else int(known)):
            raise self._lost(name)
        path = self._change(name, number)
        part = f"{path}-{uuid4()}{_UNFINISHED}"

        def write() -> bool:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(part) as target:
                target.write(data)
            if self._files.get_file_info(path).type != fs.FileType.NotFound:
                self._files.delete_file(part)
                return False
            # HDFS gives no file a name that another one has.
            self._files.move(part, path)
            return True

        if not await self._do(name, write) or await self._newest(name) != number:
            raise self._lost(name)
        if number > _CHANGES_KEPT:
            await self._do(name, lambda: self._sweep(name, number - _CHANGES_KEPT))

    def _lost(self, name: str) -> SwapLostError:
        return SwapLostError(f"{name} in {self._url}", "another process has changed it", "look at it again")

    def _change(self, name: str, number: int) -> str:
        return f"{self._root}/{name}/{number:019d}"

    def _numbers(self, name: str) -> list[int]:
        selector = fs.FileSelector(f"{self._root}/{name}", allow_not_found=True)
        found = [info.base_name for info in self._files.get_file_info(selector)]
        return sorted(int(each) for each in found if each.isdigit())

    async def _newest(self, name: str) -> int | None:
        numbers = await self._do(name, lambda: self._numbers(name))
        return numbers[-1] if numbers else None

    def _sweep(self, name: str, below: int) -> None:
        for number in self._numbers(name):
            if number < below:
                self._files.delete_file(self._change(name, number))

    async def list(self, folder: str) -> AsyncIterator[StoredObject]:
        top = f"{self._root}/{folder}".rstrip("/")
        selector = fs.FileSelector(top, allow_not_found=True, recursive=True)
        for info in await self._do(folder, lambda: self._files.get_file_info(selector)):
            if info.type == fs.FileType.File:
                name = info.path.removeprefix(self._root).lstrip("/")
                yield StoredObject(name, int(info.size), (info.mtime_ns or 0) // 1_000_000)

    async def delete(self, name: str) -> None:
        try:
            await self._do(name, lambda: self._files.delete_file(f"{self._root}/{name}"))
        except MissingObjectError:  # gone is what was asked for
            return
        except StoreError:
            # libhdfs calls what is not there an input/output error.
            try:
                await self.size(name)
            except MissingObjectError:  # gone is what was asked for
                return
            raise

    def file_of(self, name: str) -> Path | None:
        return None

    async def close(self) -> None:
        """Does nothing: pyarrow closes the connection with the object."""
