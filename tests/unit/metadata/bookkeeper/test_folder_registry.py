"""Bookies of one machine meet in a folder; one that dies is gone with its lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import MetadataError
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.bookkeeper.registry import (
    BookieIdInUseError,
    ClusterNotInitializedError,
    Cookie,
    LiveBookies,
    RegisteredBookie,
)
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError

TREE = BookKeeperTree()
Story = Callable[[Callable[[], FolderBookieRegistry]], Awaitable[None]]


def tell(folder: Path, story: Story) -> None:
    """`story` gets what makes the registry of one more process."""

    def process() -> FolderBookieRegistry:
        return FolderBookieRegistry(folder / "bookies", folder / "metadata.db", TREE)

    process().initialize("the cluster")
    asyncio.run(_run(story, process))


async def _run(story: Story, process: Callable[[], FolderBookieRegistry]) -> None:
    await story(process)


def live(*writable: str, read_only: tuple[str, ...] = ()) -> LiveBookies:
    return LiveBookies(frozenset(writable), frozenset(read_only))


def test_others_find_who_is_alive_and_where(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        bookie, other, broker = process(), process(), process()
        assert await broker.bookies() == live()
        await bookie.register(RegisteredBookie.at("one", "127.0.0.1", 3181))
        await other.register(RegisteredBookie.at("two", "127.0.0.1", 3182), read_only=True)
        assert await broker.bookies() == await bookie.bookies() == live("one", read_only=("two",))
        found = await broker.info("two")
        assert found is not None
        assert found.address() == ("127.0.0.1", 3182)
        await other.register(RegisteredBookie.at("two", "127.0.0.1", 3182))
        assert await broker.bookies() == live("one", "two")
        with pytest.raises(BookieIdInUseError):
            await other.register(RegisteredBookie.at("one", "127.0.0.1", 9))
        await bookie.unregister("one")
        await bookie.unregister("one")
        assert (await broker.bookies(), await broker.info("one")) == (live("two"), None)
        await bookie.register(RegisteredBookie.at("one", "127.0.0.1", 3183))
        assert await broker.bookies() == live("one", "two")
        await bookie.unregister("one")
        await other.unregister("two")

    tell(tmp_path, story)


def test_what_a_dead_process_said_is_not_believed(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        bookie, broker = process(), process()
        await bookie.register(RegisteredBookie.at("one", "127.0.0.1", 3181))
        said = (tmp_path / "bookies/alive/one").read_bytes()
        await bookie.unregister("one")
        (tmp_path / "bookies/alive/one").write_bytes(said)
        assert (await broker.bookies(), await broker.info("one")) == (live(), None)

    tell(tmp_path, story)


@pytest.mark.parametrize("left", [b"", bytes(60), b'{"host": "127.'], ids=["empty", "zeros", "half"])
def test_what_a_power_cut_left_of_a_registration_is_nobodys(tmp_path: Path, left: bytes) -> None:
    """The next start of the broker was refused because of it."""

    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        bookie, broker = process(), process()
        (tmp_path / "bookies/alive/one").write_bytes(left)
        (tmp_path / "bookies/alive/one.lock").touch()
        assert (await broker.bookies(), await broker.info("one")) == (live(), None)
        await bookie.register(RegisteredBookie.at("one", "127.0.0.1", 3181))
        assert await broker.bookies() == live("one")
        await bookie.unregister("one")

    tell(tmp_path, story)


def test_watchers_are_called(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        called = asyncio.Event()
        cancel = process().watch_bookies(called.set)
        await asyncio.wait_for(called.wait(), 10)
        cancel()

    tell(tmp_path, story)


def test_cookies_are_made_once(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        registry = process()
        cookie = Cookie("one", ("/a",), ("/a",), "the cluster")
        assert await registry.cookie("one") is None
        assert await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST) == 0
        assert await process().cookie("one") == (cookie, 0)
        for expected in (MUST_NOT_EXIST, 0):
            with pytest.raises(BadVersionError):
                await registry.put_cookie(cookie, expected_version=expected)
        assert await registry.known_bookies() == {"one"}
        await registry.delete_cookie("one", expected_version=0)
        assert await registry.known_bookies() == frozenset()

    tell(tmp_path, story)


def test_ledgers_are_those_of_the_brokers_file(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        registry = process()
        with pytest.raises(MetadataError, match=r"metadata\.db"):
            await registry.ledger_exists(1)
        store = EmbeddedMetadataStore.open(tmp_path / "metadata.db", clock=ManualClock(), durable=False)
        ledgers = {0, 17, 20_001, 1 << 40}
        for ledger_id in ledgers:
            await store.put(TREE.ledger(ledger_id), b"metadata")
        await store.put(f"{TREE.root}/idgen/ID-1", b"")
        await store.put(f"{TREE.root}else/00/0000/L0009", b"")
        assert {ledger_id async for ledger_id in registry.ledger_ids()} == ledgers
        await store.delete(TREE.ledger(17))
        assert [await registry.ledger_exists(each) for each in (0, 17, 1 << 40)] == [True, False, True]
        await store.close()
        assert {ledger_id async for ledger_id in registry.ledger_ids()} == ledgers - {17}
        # Ledger 0 hides under another name now: it is not listed, and must not pass for deleted.
        file = tmp_path / "metadata.db"
        file.write_bytes(file.read_bytes().replace(b"L0000", b"L0100"))
        with pytest.raises(MetadataError, match=r"cannot be listed: .*fails its checksum"):
            _ = [ledger_id async for ledger_id in registry.ledger_ids()]

    tell(tmp_path, story)


def test_another_file_in_the_place_of_the_brokers_is_another_connection(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        registry = process()
        with pytest.raises(MetadataError, match=r"metadata\.db"):
            registry.connection_id()
        file = tmp_path / "metadata.db"
        file.write_bytes(b"one")
        first = registry.connection_id()
        file.write_bytes(b"the same, written to")
        assert registry.connection_id() == first
        other = tmp_path / "other.db"
        other.write_bytes(b"another")
        other.replace(file)
        assert registry.connection_id() != first

    tell(tmp_path, story)


def test_the_folder_is_that_of_one_cluster(tmp_path: Path) -> None:
    async def story(process: Callable[[], FolderBookieRegistry]) -> None:
        assert await process().instance_id() == "the cluster"
        process().initialize("the cluster")
        with pytest.raises(
            MetadataError, match="belongs to the bookies of cluster the cluster, not of other"
        ):
            process().initialize("other")
        (tmp_path / "bookies/instance").unlink()
        with pytest.raises(ClusterNotInitializedError):
            await process().instance_id()

    tell(tmp_path, story)
