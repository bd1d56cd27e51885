"""Our ledger client and our bookies, in one process, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import CorruptDataError, LostEntriesError, StartupError
from magnetar.bookie.decisions import DECISIONS_FILE, Decisions, encode_decisions
from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.bookie.store_options import StoreOptions
from magnetar.ledger.api import LedgerEnd, LedgerFencedError, NoSuchLedgerError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.errors import LedgerUnauthorizedError, LedgerUnreadableError
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle, LedgerOptions, LedgerWriteHandle
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.memory import MemoryMetadataStore
from support.ledger_clusters import Marks
from support.object_stores import free_port
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")

VERSIONS = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
GIB = 1 << 30


class World:
    """A cluster: metadata in memory, bookies with folders and ports of their own."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryMetadataStore(ManualClock())
        self.tree = BookKeeperTree()
        self.ledgers = TreeLedgerRegistry(self.store, self.tree)
        self.bookies = TreeBookieRegistry(self.store, self.tree, claim_timeout_s=1.0)
        self.nodes: dict[str, BookieNode] = {}
        self.free_bytes = GIB
        self._folder = folder
        self._ports: dict[str, int] = {}

    async def start(self, name: str) -> BookieNode:
        """Starts a bookie, with what it had before."""
        port = self._ports.setdefault(name, free_port())
        options = NodeOptions(
            data=self._folder / name,
            port=port,
            store=StoreOptions(segment_bytes=1 << 20, prewrite_bytes_per_s=0),
        )
        node = self.nodes[name] = await BookieNode.start(
            options, self.bookies, measure=lambda _: (GIB, self.free_bytes)
        )
        return node

    async def stop(self, name: str) -> None:
        """Stops a bookie."""
        await self.nodes.pop(name).close()

    def name_of(self, bookie_id: str) -> str:
        """The bookie with this id."""
        return next(name for name, port in self._ports.items() if bookie_id.endswith(f":{port}"))

    @asynccontextmanager
    async def client(self, *, use_v2: bool = True) -> AsyncIterator[LedgerClient]:
        options = LedgerClientOptions(use_v2=use_v2, call_back_s=0.1)
        client = LedgerClient(Cluster(self.ledgers, self.bookies, options))
        try:
            yield client
        finally:
            await client.close()


def run(folder: Path, story: Callable[[World], Awaitable[None]], *, bookies: int = 3) -> None:
    async def main() -> None:
        world = World(folder)
        await initialize_cluster(world.store, world.tree, "cluster")
        for name in "abcdef"[:bookies]:
            await world.start(name)
        try:
            await story(world)
        finally:
            for name in list(world.nodes):
                await world.stop(name)
            await world.store.close()

    asyncio.run(main())


async def create(client: LedgerClient, *quorums: int) -> tuple[LedgerWriteHandle, Marks]:
    marks = Marks()
    options = LedgerOptions(layout=QuorumLayout(*quorums), password=b"secret")
    return await client.create(options, marks), marks


async def payloads_of(handle: LedgerHandle) -> list[bytes]:
    out: list[bytes] = []
    while len(out) <= handle.last_entry:
        out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 16)]
    return out


def is_good(node: BookieNode, ledger_id: int, entry_id: int) -> bool:
    """Whether the bookie has a good copy."""
    node.server.entries.waits = True
    try:
        return node.server.entries.entry(ledger_id, entry_id) is not None
    except CorruptDataError:
        return False
    finally:
        node.server.entries.waits = False


@VERSIONS
@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 3, 2), (3, 2, 2)])
def test_ledgers_live_through_takeovers_and_restarts(
    tmp_path: Path, quorums: tuple[int, int, int], use_v2: bool
) -> None:
    payloads = [b"%d" % number * 40 for number in range(600)]

    async def story(world: World) -> None:
        async with world.client(use_v2=use_v2) as writing, world.client(use_v2=use_v2) as taking:
            writer, marks = await create(writing, *quorums)
            for first in range(0, 600, 100):
                writer.append(payloads[first : first + 100])
                await marks.reach(first + 99)
            taken = await taking.open(writer.ledger_id, b"secret")
            assert (taken.last_entry, taken.length_bytes) == (599, sum(map(len, payloads)))
            writer.append([b"too late"])
            with pytest.raises(LedgerFencedError):
                await marks.reach(600)
            with pytest.raises(LedgerUnauthorizedError):
                await taking.open(writer.ledger_id, b"another")
            closed, _ = await create(writing, *quorums)
            closed.append(payloads[:10])
            assert (await closed.close()).last_entry == 9
        for name in list(world.nodes):
            await world.stop(name)
            await world.start(name)
        async with world.client(use_v2=use_v2) as client:
            assert await payloads_of(await client.open(writer.ledger_id, b"secret")) == payloads
            assert await payloads_of(await client.open(closed.ledger_id, b"secret")) == payloads[:10]

    run(tmp_path, story)


@VERSIONS
def test_a_bookie_that_goes_is_replaced_and_comes_back(tmp_path: Path, use_v2: bool) -> None:
    async def story(world: World) -> None:
        async with world.client(use_v2=use_v2) as client:
            writer, marks = await create(client, 3, 3, 2)
            writer.append([b"before"] * 10)
            await marks.reach(9)
            gone = world.name_of(writer.metadata.ensembles[0][1][1])
            await world.stop(gone)
            writer.append([b"after"] * 10)
            end = await writer.close()
            assert end == LedgerEnd(19, 110)
            first, last = writer.metadata.ensembles[0][1], writer.metadata.ensembles[-1][1]
            assert len(set(last) - set(first)) == 1
            await world.start(gone)
            reader = await client.open(writer.ledger_id, b"secret")
            assert await payloads_of(reader) == [b"before"] * 10 + [b"after"] * 10

    run(tmp_path, story, bookies=4)


@VERSIONS
def test_three_bookies_write_on_with_two_and_the_third_comes_back(tmp_path: Path, use_v2: bool) -> None:
    async def story(world: World) -> None:
        async with world.client(use_v2=use_v2) as client:
            writer, marks = await create(client, 3, 3, 2)
            await world.stop("b")
            writer.append([b"two"] * 10)
            await marks.reach(9)
            assert len(writer.metadata.ensembles) == 1
            node = await world.start("b")
            last = 9

            async def third_has_it() -> None:
                nonlocal last
                while node.server.entries.last_entry(writer.ledger_id) < 0:
                    last = writer.append([b"three"])
                    await marks.reach(last)

            await asyncio.wait_for(third_has_it(), 30)
            end = await writer.close()
            reader = await client.open(writer.ledger_id, b"secret")
            assert await payloads_of(reader) == [b"two"] * 10 + [b"three"] * (end.last_entry - 9)

    run(tmp_path, story)


def test_a_damaged_copy_is_passed_over_and_made_good(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.client() as client:
            writer, marks = await create(client, 2, 2, 2)
            writer.append([b"x" * 10_000])
            await marks.reach(0)
            await writer.close()
            first = world.name_of(writer.metadata.ensembles[0][1][0])
            await world.stop(first)
            segment = max((tmp_path / first).glob("**/*.seg"), key=lambda path: path.stat().st_size)
            data = bytearray(segment.read_bytes())
            at = data.find(b"x" * 1_000)
            assert at > 0
            data[at + 500] ^= 1
            segment.write_bytes(data)
            node = await world.start(first)
            reader = await client.open(writer.ledger_id, b"secret")
            for _ in range(2):
                assert await payloads_of(reader) == [b"x" * 10_000]
            await eventually(lambda: is_good(node, writer.ledger_id, 0))

    run(tmp_path, story, bookies=2)


def test_an_entry_that_is_damaged_everywhere_is_lost_when_everybody_has_said_so(tmp_path: Path) -> None:
    async def damage(world: World, name: str) -> None:
        await world.stop(name)
        segment = max((tmp_path / name).glob("**/*.seg"), key=lambda path: path.stat().st_size)
        data = bytearray(segment.read_bytes())
        at = data.find(b"x" * 1_000)
        assert at > 0
        data[at + 500] ^= 1
        segment.write_bytes(data)

    async def story(world: World) -> None:
        async with world.client() as client:
            options = LedgerOptions(layout=QuorumLayout(2, 2, 2), password=b"secret")
            ledgers = RemoteLedgers(client, options, ManualClock())
            marks = Marks()
            writer = await ledgers.create(marks, {})
            for entry in (b"before", b"x" * 10_000, b"behind"):
                await marks.reach(writer.append([entry], None, 0, 1))
            await writer.close()
            first, second = "ab"
            await damage(world, first)
            await damage(world, second)
            await world.start(first)
            reader = await ledgers.open(writer.ledger_id)
            # The other one may have a good copy: no client can tell while it is away.
            with pytest.raises(LedgerUnreadableError):
                await reader.read(1, 1, 1 << 20)
            await world.start(second)

            async def lost() -> LostEntriesError:
                while True:
                    try:
                        await reader.read(1, 1, 1 << 20)
                    except LostEntriesError as error:
                        return error
                    except LedgerUnreadableError:
                        # The client has not found the second one again.
                        await asyncio.sleep(0.05)

            error = await asyncio.wait_for(lost(), 60)
            assert (error.ledger_id, error.first_entry, error.last_entry) == (writer.ledger_id, 1, 1)
            assert f"accept-loss {writer.ledger_id} 1" in str(error)
            for entry, payload in ((0, b"before"), (2, b"behind")):
                [found] = await reader.read(entry, entry, 1 << 20)
                assert found.entries == [payload]

    run(tmp_path, story, bookies=2)


def test_a_full_disk_is_read_only_until_there_is_room(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.client() as client:
            writer, marks = await create(client, 1, 1, 1)
            writer.append([b"a"])
            await marks.reach(0)
            full = world.name_of(writer.metadata.ensembles[0][1][0])
            node = world.nodes[full]
            world.free_bytes = GIB // 100
            await node.look_at_disk()
            live = await world.bookies.bookies()
            assert (node.bookie_id in live.writable, node.bookie_id in live.read_only) == (False, True)
            writer.append([b"b"])
            await writer.close()
            assert writer.metadata.ensembles[-1][1] != writer.metadata.ensembles[0][1]
            assert await payloads_of(await client.open(writer.ledger_id, b"secret")) == [b"a", b"b"]
            world.free_bytes = GIB
            await node.look_at_disk()
            assert node.bookie_id in (await world.bookies.bookies()).writable
            assert not node.server.ledgers.read_only

    run(tmp_path, story, bookies=2)


def test_deleted_ledgers_are_collected_and_do_not_come_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = world.nodes["a"]
        async with world.client() as client:
            kept, _ = await create(client, 1, 1, 1)
            kept.append([b"kept"])
            await kept.close()
            deleted, marks = await create(client, 1, 1, 1)
            deleted.append([b"deleted"])
            await marks.reach(0)
            assert node.server.known_ledgers() == {kept.ledger_id, deleted.ledger_id}
            await client.delete(deleted.ledger_id)
            await node.collect_garbage()
            await eventually(lambda: node.server.known_ledgers() == {kept.ledger_id})
            with pytest.raises(NoSuchLedgerError):
                await client.open(deleted.ledger_id, b"secret")
            deleted.append([b"a writer that does not know"])
            with pytest.raises(LedgerFencedError):
                await marks.reach(1)
            assert await payloads_of(await client.open(kept.ledger_id, b"secret")) == [b"kept"]

    run(tmp_path, story, bookies=1)


def test_metadata_that_is_an_older_copy_deletes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        node = world.nodes["a"]
        async with world.client() as client:
            other, _ = await create(client, 1, 1, 1)
            other.append([b"other"])
            await other.close()
            writer, _ = await create(client, 1, 1, 1)
            writer.append([b"acknowledged"])
            await writer.close()
            lost = writer.ledger_id
            await node.collect_garbage()
            # A copy comes while the auditor does not look: a connection that it interrupts ends the round.
            await eventually(lambda: not node._collecting.is_running)
            assert node.keeper.state.generation > 0
            # Restored: as if the bookie's cookie had never been raised, and the ledger not been made.
            cookie = world.tree.cookie(node.bookie_id)
            stored, metadata = await world.store.get(cookie), await world.store.get(world.tree.ledger(lost))
            assert stored is not None
            assert metadata is not None
            await world.store.delete(cookie)
            await world.store.put(cookie, stored.data)
            await world.store.delete(world.tree.ledger(lost))
            await node.collect_garbage()
            await eventually(lambda: lost in node.keeper.state.held)
            assert "older copy" in node.keeper.state.doubt
            # A restart still knows.
            await world.stop("a")
            node = await world.start("a")
            assert "older copy" in node.keeper.state.doubt
            await world.store.put(world.tree.ledger(lost), metadata.data)
            await node.collect_garbage()
            await eventually(lambda: not node.keeper.state.held)
            assert await payloads_of(await client.open(lost, b"secret")) == [b"acknowledged"]
            await client.delete(lost)
            decided = Decisions(accept=True)
            (tmp_path / "a" / DECISIONS_FILE).write_bytes(encode_decisions(decided))
            await node.look_at_disk()
            await eventually(lambda: node.server.known_ledgers() == {other.ledger_id})

    run(tmp_path, story, bookies=1)


@VERSIONS
def test_ids_that_bookies_know_are_stepped_over(tmp_path: Path, use_v2: bool) -> None:
    async def story(world: World) -> None:
        async with world.client(use_v2=use_v2) as client:
            written = []
            for _ in range(3):
                writer, _ = await create(client, 3, 3, 2)
                writer.append([b"acknowledged"])
                await writer.close()
                written.append(writer.ledger_id)
        # Metadata as it was before these ledgers: it counts from where it stood.
        older = MemoryMetadataStore(ManualClock())
        registry = TreeLedgerRegistry(older, world.tree)
        options = LedgerClientOptions(use_v2=use_v2, new_ids_asked=True)
        again = LedgerClient(Cluster(registry, world.bookies, options))
        await world.stop("a")
        fresh, _ = await create(again, 2, 2, 2)
        assert fresh.ledger_id == max(written) + 1
        assert {each async for each in registry.ledger_ids()} == {fresh.ledger_id}
        await again.close()
        await older.close()

    run(tmp_path, story)


def test_a_bookie_with_another_disk_does_not_start(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.stop("a")
        (tmp_path / "a").rename(tmp_path / "elsewhere")
        with pytest.raises(StartupError, match="was the disk lost"):
            await world.start("a")
        world.nodes.clear()

    run(tmp_path, story, bookies=1)
