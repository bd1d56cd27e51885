"""Packages by name and version, and uploaded files by path: one record each in the metadata store.

A version never changes: it is uploaded once, and deleted. Its description may change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue.package_files import PackageFiles, StoredFile
from magnetar.functions.catalogue.package_name import LATEST, PackageName, packages_key, versions_key
from magnetar.functions.catalogue.records import PackageRecord
from magnetar.functions.refusals import (
    FunctionsFullError,
    InvalidPackageNameError,
    PackageExistsError,
    PackageNotFoundError,
)
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    MetadataStore,
    NotFoundError,
    delete_as_read,
)

PACKAGES_MAX: Final = 1_000
"""Most packages of one type in a namespace, and most versions of a package."""
UPLOADS_MAX: Final = 1_000
"""Most files that are uploaded by path."""
PATH_CHARS_MAX: Final = 1_024


class Packages:
    """Packages and uploaded files."""

    def __init__(self, store: MetadataStore, files: PackageFiles, clock: Clock) -> None:
        self._store = store
        self._files = files
        self._clock = clock

    # -- by name

    async def names(self, kind: str, namespace: NamespaceName) -> list[str]:
        """Names of the packages of a type, sorted."""
        names = await self._store.children(packages_key(kind, namespace))
        # The last version of a package that was deleted may leave the parent behind.
        found = [
            name for name in names if await self._store.children(f"{packages_key(kind, namespace)}/{name}")
        ]
        return sorted(keys.decode_child(name) for name in found)

    async def versions(self, name: PackageName) -> list[str]:
        """Versions of a package, sorted as texts. Raises PackageNotFoundError."""
        found = await self._store.children(versions_key(name))
        if not found:
            raise PackageNotFoundError(
                f"Package '{name.type}://{name.namespace}/{name.name}' does not exist",
                remedy=f"`magnetar packages list {name.namespace}` names those that do",
            )
        return sorted(keys.decode_child(version) for version in found)

    async def get(self, name: PackageName) -> PackageRecord:
        """One version. Raises PackageNotFoundError, DamagedDocumentError."""
        value = await self._store.get(name.key)
        if value is None:
            raise _absent(name)
        return PackageRecord.decode(name.key, value.data)

    async def resolve(self, name: PackageName) -> PackageRecord:
        """One version; LATEST means the newest, unless a version has that name. Raises
        PackageNotFoundError."""
        if name.version != LATEST or await self._store.exists(name.key):
            return await self.get(name)
        records = [await self.get(replace(name, version=version)) for version in await self.versions(name)]
        return max(records, key=lambda record: record.created_ms)

    async def add(self, name: PackageName, record: PackageRecord) -> None:
        """Adds a version; durable on return. Raises PackageExistsError, FunctionsFullError."""
        others = await self._store.children(versions_key(name))
        packages = await self._store.children(packages_key(name.type, name.namespace))
        if len(others) >= PACKAGES_MAX or (not others and len(packages) >= PACKAGES_MAX):
            what = "versions of a package" if others else "packages of a namespace"
            raise FunctionsFullError(f"there are {PACKAGES_MAX} {what}, the most there may be")
        now_ms = self._clock.now_ms()
        made = replace(record, created_ms=now_ms, updated_ms=now_ms)
        try:
            await self._store.put(name.key, made.encode(), expected_version=MUST_NOT_EXIST)
        except BadVersionError as error:
            raise PackageExistsError(
                f"Package '{name}' already exists",
                remedy="upload it with another version, or delete this one",
            ) from error

    async def describe(self, name: PackageName, described: PackageRecord) -> None:
        """Replaces description, contact and properties. Raises PackageNotFoundError, DamagedDocumentError."""
        while (value := await self._store.get(name.key)) is not None:
            before = PackageRecord.decode(name.key, value.data)
            after = replace(
                described, file=before.file, created_ms=before.created_ms, updated_ms=self._clock.now_ms()
            )
            try:
                await self._store.put(name.key, after.encode(), expected_version=value.stat.version)
            except BadVersionError:
                continue  # Another caller was faster.
            return
        raise _absent(name)

    async def delete(self, name: PackageName) -> None:
        """Removes a version; functions made of it have copies of their own. Raises PackageNotFoundError."""
        if not await self._delete(name.key):
            raise _absent(name)

    async def _delete(self, path: str) -> bool:
        while (value := await self._store.get(path)) is not None:
            try:
                await delete_as_read(self._store, path, value.stat)
            except NotFoundError:
                break  # Another caller has deleted it.
            except BadVersionError:
                continue  # Another caller has changed it meanwhile.
            await self._remove(path, value.data)
            return True
        return False

    async def _remove(self, path: str, data: bytes) -> None:
        try:
            file = PackageRecord.decode(path, data).file
        except DamagedDocumentError:
            return  # Which file it was is not known: a later start finds it.
        await self._files.remove(file)

    # -- by path

    async def upload(self, path: str, file: StoredFile) -> None:
        """Keeps a file under a path, in place of an earlier one. Raises FunctionsFullError."""
        key = _upload_key(path)
        now_ms = self._clock.now_ms()
        data = PackageRecord(file, created_ms=now_ms, updated_ms=now_ms).encode()
        while True:
            before = await self._store.get(key)
            if before is None and len(await self._store.children(keys.FUNCTION_FILES)) >= UPLOADS_MAX:
                raise FunctionsFullError(f"there are {UPLOADS_MAX} uploaded files, the most there may be")
            try:
                await self._store.put(
                    key, data, expected_version=MUST_NOT_EXIST if before is None else before.stat.version
                )
            except BadVersionError:
                continue  # Another caller was faster; the last one wins.
            if before is not None:
                await self._remove(key, before.data)
            return

    async def uploaded(self, path: str) -> StoredFile:
        """The file that was uploaded under a path. Raises PackageNotFoundError, InvalidPackageNameError."""
        key = _upload_key(path)
        value = await self._store.get(key)
        if value is None:
            raise PackageNotFoundError(f"no file was uploaded as {path[:200]!r}")
        return PackageRecord.decode(key, value.data).file

    # -- all

    async def paths(self) -> list[str]:
        """Keys of all records."""
        found = [f"{keys.FUNCTION_FILES}/{name}" for name in await self._store.children(keys.FUNCTION_FILES)]
        level = [keys.PACKAGES]
        for _ in ("type", "tenant", "namespace", "package", "version"):
            level = [f"{parent}/{name}" for parent in level for name in await self._store.children(parent)]
        return found + level


def _absent(name: PackageName) -> PackageNotFoundError:
    return PackageNotFoundError(
        f"Package '{name}' does not exist",
        remedy=f"`magnetar packages versions {name.namespace} {name.name}` names those that do",
    )


def _upload_key(path: str) -> str:
    """Raises InvalidPackageNameError: the path is a name only, yet tools join it to folders of their own."""
    if (
        not path
        or len(path) > PATH_CHARS_MAX
        or not path.isprintable()
        or not {".", ".."}.isdisjoint(path.split("/"))
    ):
        raise InvalidPackageNameError(
            f"the path {path[:100]!r} cannot be used",
            remedy=f"a path has at most {PATH_CHARS_MAX} printable characters and no steps `.` and `..`",
        )
    return keys.function_file(path)
