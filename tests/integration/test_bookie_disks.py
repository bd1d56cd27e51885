"""A bookie with several data folders: ledgers are spread, found again, and no folder may be missing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.bookie.store_options import StoreOptions
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.server.bookies.bookie_pages import BookiePages
from support.ledger_clusters import Marks
from support.object_stores import free_port
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")

ROOM = 1 << 30
LEDGERS = 6


class World:
    """A cluster of one bookie, whose disks are as full as `free_bytes` says."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second, self.third = (folder / name for name in ("first", "second", "third"))
        self.store = MemoryMetadataStore(ManualClock())
        self.tree = BookKeeperTree()
        self.ledgers = TreeLedgerRegistry(self.store, self.tree)
        self.bookies = TreeBookieRegistry(self.store, self.tree, claim_timeout_s=1.0)
        self.free_bytes: dict[Path, int] = {}
        self._port = free_port()

    async def start(self, *folders: Path) -> BookieNode:
        options = NodeOptions(
            data=folders[0],
            more_data=folders[1:],
            port=self._port,
            store=StoreOptions(segment_bytes=1 << 20, prewrite_bytes_per_s=0),
        )
        return await BookieNode.start(
            options, self.bookies, measure=lambda folder: (ROOM, self.free_bytes.get(folder, ROOM))
        )

    async def write(self) -> dict[int, list[bytes]]:
        """Ledgers that are closed, and what is in them."""
        client = LedgerClient(Cluster(self.ledgers, self.bookies))
        written: dict[int, list[bytes]] = {}
        for number in range(LEDGERS):
            writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), Marks())
            payloads = [b"%d of %d" % (entry, number) for entry in range(10)]
            writer.append(payloads)
            await writer.close()
            written[writer.ledger_id] = payloads
        await client.close()
        return written

    async def check(self, written: dict[int, list[bytes]]) -> None:
        client = LedgerClient(Cluster(self.ledgers, self.bookies))
        for ledger_id, payloads in written.items():
            handle = await client.open(ledger_id)
            assert [entry.payload for entry in await handle.read(0, 9, 1 << 20)] == payloads
        await client.close()


def run(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(folder)
        await initialize_cluster(world.store, world.tree, "cluster")
        try:
            await story(world)
        finally:
            await world.bookies.close()
            await world.store.close()

    asyncio.run(main())


def test_ledgers_are_spread_and_found_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await world.start(world.first, world.second)
        written = await world.write()
        await world.check(written)
        held = [{each for each in store.ledger_ids() if each >= 0} for store in node.server.entries.stores]
        assert [len(ledgers) for ledgers in held] == [LEDGERS // 2, LEDGERS // 2]
        assert held[0] | held[1] == node.server.known_ledgers() == written.keys()
        page = await BookiePages(node, world.bookies).answer("GET", "/metrics", {}, b"")
        assert b"\nbookie_ledger_writable_dirs 2\n" in page.body
        assert page.body.count(b"\nmagnetar_segments ") == 1
        await node.close()

        node = await world.start(world.first, world.second)
        await world.check(written)
        gone = min(written)
        await world.ledgers.delete(gone)
        await node.collect_garbage()
        await eventually(lambda: gone not in node.server.known_ledgers())
        await node.close()

    run(tmp_path, story)


def test_no_folder_may_be_missing_added_or_exchanged(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await world.start(world.first, world.second)
        await node.close()
        for folders in (
            (world.first,),
            (world.second, world.first),
            (world.first, world.third),
            (world.first, world.second, world.third),
        ):
            with pytest.raises(StartupError, match=r"not that of bookie|another bookie"):
                await world.start(*folders)
        (world.second / "VERSION").unlink()
        with pytest.raises(StartupError, match="was the disk lost"):
            await world.start(world.first, world.second)

    run(tmp_path, story)


def test_a_start_that_ended_between_the_stamps_goes_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await world.start(world.first, world.second)
        await node.close()
        stored = await world.bookies.cookie(node.bookie_id)
        assert stored is not None
        await world.bookies.delete_cookie(node.bookie_id, expected_version=stored[1])
        (world.second / "VERSION").unlink()
        node = await world.start(world.first, world.second)
        assert (world.second / "VERSION").exists()
        assert await world.bookies.cookie(node.bookie_id) is not None
        await node.close()

    run(tmp_path, story)


def test_it_is_as_full_as_the_fullest_disk(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = await world.start(world.first, world.second)
        for free_bytes, read_only in ((0, True), (ROOM, False)):
            world.free_bytes[world.second] = free_bytes
            await node.look_at_disk()
            assert node.read_only is read_only
        await node.close()

    run(tmp_path, story)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory at /dev/shm")
def test_entries_are_read_where_the_kernel_never_tells_what_is_in_memory() -> None:
    """On tmpfs, as on NFS, no read succeeds that must not wait. A bookie read an entry that is a block of
    its own in a thread, asked again whether it is in memory, and so on for ever."""

    async def story(world: World) -> None:
        node = await world.start(world.first)
        marks, payloads = Marks(), [b"%d" % entry for entry in range(10)]
        client = LedgerClient(Cluster(world.ledgers, world.bookies))
        writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), marks)
        for entry, payload in enumerate(payloads):
            writer.append([payload])
            await marks.reach(entry)
        await writer.close()
        await client.close()
        await asyncio.wait_for(world.check({writer.ledger_id: payloads}), 60)
        await node.close()

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run(Path(folder), story)
