"""Packages by version, and uploaded files by path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue import packages as module
from magnetar.functions.catalogue.package_files import PackageFiles
from magnetar.functions.catalogue.package_name import PackageName
from magnetar.functions.catalogue.packages import Packages
from magnetar.functions.catalogue.records import PackageRecord
from magnetar.functions.refusals import (
    FunctionsFullError,
    InvalidPackageNameError,
    PackageExistsError,
    PackageNotFoundError,
)
from magnetar.metadata.memory import MemoryMetadataStore
from support.functions import CODE, files_in, run, stored

N = NamespaceName("public", "default")


def named(version: str = "1", name: str = "ex") -> PackageName:
    return PackageName.of("function", N, name, version)


class Place:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.files: PackageFiles = files_in(folder)
        self.packages = Packages(MemoryMetadataStore(self.clock), self.files, self.clock)

    async def add(self, name: PackageName, *, data: bytes = CODE) -> None:
        await self.packages.add(name, PackageRecord(await stored(self.files, data=data)))
        self.clock.advance(1)

    def count(self) -> int:
        return len(list(self.files.folder.iterdir()))


def with_place(folder: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def told() -> None:
        place = Place(folder)
        await place.files.open(())
        await story(place)

    run(told)


def test_versions_are_added_listed_and_deleted(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        packages = place.packages
        assert await packages.names("function", N) == []
        for version in ("2", "10", "a b"):
            await place.add(named(version))
        await place.add(named(name="other"))
        assert await packages.names("function", N) == ["ex", "other"]
        assert await packages.names("sink", N) == []
        assert await packages.versions(named()) == ["10", "2", "a b"]
        with pytest.raises(
            PackageExistsError, match="Package 'function://public/default/ex@2' already exists"
        ):
            await place.add(named("2"))
        for version in ("2", "10", "a b"):
            await packages.delete(named(version))
        assert await packages.names("function", N) == ["other"]
        for call in (packages.versions(named()), packages.get(named()), packages.delete(named())):
            with pytest.raises(PackageNotFoundError, match="does not exist"):
                await call

    with_place(tmp_path, story)


def test_latest_is_the_newest_unless_a_version_has_that_name(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.add(named("9"), data=b"nine")
        await place.add(named("10"), data=b"ten!!")
        latest = named("latest")
        assert (await place.packages.resolve(latest)).file.bytes == 5
        assert (await place.packages.resolve(named("9"))).file.bytes == 4
        await place.add(latest, data=b"own")
        await place.add(named("11"), data=b"eleven")
        assert (await place.packages.resolve(latest)).file.bytes == 3

    with_place(tmp_path, story)


def test_a_description_changes_and_the_file_stays(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.add(named())
        before = await place.packages.get(named())
        place.clock.advance(5)
        other = PackageRecord(await stored(place.files), "what", "who", {"a": "b"})
        await place.packages.describe(named(), other)
        after = await place.packages.get(named())
        assert (after.description, after.contact, after.properties) == ("what", "who", {"a": "b"})
        assert (after.file, after.created_ms) == (before.file, before.created_ms)
        assert after.updated_ms > before.updated_ms
        with pytest.raises(PackageNotFoundError):
            await place.packages.describe(named("7"), other)

    with_place(tmp_path, story)


def test_an_upload_replaces_the_one_before(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        packages = place.packages
        await packages.upload("a/b c", await stored(place.files, data=b"one"))
        await packages.upload("a/b c", await stored(place.files, data=b"three"))
        assert ((await packages.uploaded("a/b c")).bytes, place.count()) == (5, 1)
        with pytest.raises(PackageNotFoundError, match="no file was uploaded as 'a'"):
            await packages.uploaded("a")
        for path in ("", "..", "a/../b", ".", "a\n", "p" * 2_000):
            with pytest.raises(InvalidPackageNameError):
                await packages.uploaded(path)
        assert len(await packages.paths()) == 1

    with_place(tmp_path, story)


def test_numbers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES_MAX", 2)
    monkeypatch.setattr(module, "UPLOADS_MAX", 1)

    async def story(place: Place) -> None:
        for name in (named("1"), named("2"), named(name="other")):
            await place.add(name)
        with pytest.raises(FunctionsFullError, match="versions of a package"):
            await place.add(named("3"))
        with pytest.raises(FunctionsFullError, match="packages of a namespace"):
            await place.add(named(name="third"))
        await place.packages.upload("a", await stored(place.files))
        await place.packages.upload("a", await stored(place.files))
        with pytest.raises(FunctionsFullError, match="uploaded files"):
            await place.packages.upload("b", await stored(place.files))

    with_place(tmp_path, story)
