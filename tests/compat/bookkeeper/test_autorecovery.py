"""Auto-recovery of ours and of Apache's over our bookies, with marks, locks and office in common."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from magnetar.ledger.autorecovery.decommission import Decommission
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from support.apache_bookkeeper import ApacheBookKeeper
from support.bookie_process import BookieProcess
from support.ledger_clusters import Marks

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

ROOT = "/recovered"
THEIRS = "/recovered-theirs"
QUICK = LedgerClientOptions(connect_timeout_s=2.0, answer_timeout_s=2.0, backoff_max_s=0.5)
OPTIONS = RecoveryOptions(node_id="recovery-1", retry_first_s=0.2)


@pytest.fixture
def bookies(
    apache: ApacheBookKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BookieProcess]]:
    """Four of ours, by id."""
    folder = tmp_path_factory.mktemp("bookies")
    url = f"zk://{apache.zookeeper}{ROOT}"
    running = [BookieProcess(folder / name, url) for name in ("first", "second", "third", "fourth")]
    try:
        for bookie in running:
            bookie.begin()
        for bookie in running:
            bookie.wait()
        yield {bookie.bookie_id: bookie for bookie in running}
    finally:
        for bookie in running:
            bookie.stop()
        asyncio.run(_forget(apache))


async def _forget(apache: ApacheBookKeeper) -> None:
    """A later bookie may get the port of one of these, and must not be taken for it."""
    async with world_of(apache) as world:
        cookies = f"{ROOT}/cookies"
        for name in await world.store.children(cookies):
            await world.store.delete(f"{cookies}/{name}")


class World:
    """Metadata and a client."""

    def __init__(self, apache: ApacheBookKeeper, store: MetadataStore, tree: BookKeeperTree) -> None:
        self._apache = apache
        self.store = store
        self.tree = tree
        self.ledgers = TreeLedgerRegistry(store, tree)
        self.bookies = TreeBookieRegistry(store, tree)
        self.client = LedgerClient(Cluster(self.ledgers, self.bookies, QUICK))
        self.marks = UnderreplicatedLedgers(store, tree, SystemClock())

    async def shell(self, *words: str) -> str:
        return await asyncio.to_thread(lambda: self._apache.shell(*words, root=self.tree.root))

    async def written(self, count: int) -> tuple[int, list[bytes], tuple[str, ...]]:
        """A closed ledger: its id, its entries, the bookies that hold them."""
        marks = Marks()
        writer = await self.client.create(LedgerOptions(layout=QuorumLayout(3, 2, 2)), marks)
        payloads = [b"entry %d" % number for number in range(count)]
        writer.append(payloads)
        await marks.reach(count - 1)
        await writer.close()
        return writer.ledger_id, payloads, writer.metadata.ensembles[0][1]

    async def read(self, ledger_id: int) -> list[bytes]:
        handle = await self.client.open(ledger_id)
        out: list[bytes] = []
        while len(out) <= handle.last_entry:
            out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 20)]
        return out

    async def next_change(self) -> None:
        """Waits until something happens in the metadata."""
        news = asyncio.Event()
        cancel = self.store.watch(self.tree.root, lambda _: news.set())
        await news.wait()
        cancel()

    async def until(self, ledger_id: int, condition: Callable[[LedgerMetadata], bool]) -> None:
        """Waits until the ledger is so, and not marked."""
        news = asyncio.Event()
        cancel = self.store.watch(self.tree.root, lambda _: news.set())
        async with asyncio.timeout(90):
            while True:
                news.clear()
                stored = await self.ledgers.read(ledger_id)
                if condition(stored.metadata) and await self.marks.get(ledger_id) is None:
                    break
                await news.wait()
        cancel()


@asynccontextmanager
async def world_of(apache: ApacheBookKeeper, root: str = ROOT) -> AsyncIterator[World]:
    url = parse_metadata_url(f"zk://{apache.zookeeper}{root}")
    store = await open_metadata(url, SystemClock(), session_timeout_ms=6000)
    world = World(apache, store, await open_tree(store, url.root))
    await world.marks.prepare()
    try:
        yield world
    finally:
        await world.client.close()
        await world.bookies.close()
        await store.close()


def without(bookie: str) -> Callable[[LedgerMetadata], bool]:
    return lambda metadata: all(bookie not in members for _, members in metadata.ensembles)


def test_ours_repairs_and_apaches_shell_looks_on(
    apache: ApacheBookKeeper, bookies: dict[str, BookieProcess]
) -> None:
    async def story() -> None:
        async with world_of(apache) as world:
            ledger_id, payloads, members = await world.written(100)
            await world.shell("autorecovery", "-disable")
            node = await AutoRecoveryNode.start(world.store, world.tree, SystemClock(), OPTIONS, QUICK)
            await world.marks.mark(ledger_id, frozenset({members[0]}))
            listed = await world.shell("listunderreplicated", "-printmissingreplica")
            assert re.search(rf"\b{ledger_id}\b", listed)
            assert members[0] in listed
            bookies[members[0]].kill()
            await world.shell("autorecovery", "-enable")
            await world.until(ledger_id, without(members[0]))
            assert "recovery-1" in await world.shell("whoisauditor")
            assert "count: 0" in await world.shell("listunderreplicated")
            await world.shell("lostbookierecoverydelay", "-set", "7")
            assert "7" in await world.shell("lostbookierecoverydelay", "-get")
            # As if the auditor had overlooked one: Apache's shell asks for an audit.
            stored = await world.ledgers.read(ledger_id)
            ((_, now),) = stored.metadata.ensembles
            back = stored.metadata.with_ensembles(((0, (members[0], *now[1:])),))
            await world.ledgers.write(ledger_id, back, stored.version)
            await world.shell("triggeraudit")
            await world.until(ledger_id, without(members[0]))
            assert await world.read(ledger_id) == payloads
            await node.close()

    asyncio.run(story())


def test_apaches_repairs_our_bookies(apache: ApacheBookKeeper, bookies: dict[str, BookieProcess]) -> None:
    async def story() -> None:
        async with world_of(apache) as world:
            ledger_id, payloads, members = await world.written(100)
            await asyncio.to_thread(apache.start_recovery, "theirs", ROOT)
            bookies[members[1]].kill()
            await world.until(ledger_id, without(members[1]))
            await asyncio.to_thread(apache.stop_recovery, "theirs")
            assert await world.read(ledger_id) == payloads

    asyncio.run(story())


def test_the_shell_recovers_what_a_lost_bookie_of_ours_had(
    apache: ApacheBookKeeper, bookies: dict[str, BookieProcess]
) -> None:
    async def story() -> None:
        async with world_of(apache) as world:
            ledger_id, payloads, members = await world.written(100)
            bookies[members[2]].kill()
            await world.shell("recover", "-force", "-deleteCookie", members[2])
            await world.until(ledger_id, without(members[2]))
            assert members[2] not in await world.bookies.known_bookies()
            assert await world.read(ledger_id) == payloads

    asyncio.run(story())


@pytest.fixture
def theirs(apache: ApacheBookKeeper) -> Iterator[dict[str, str]]:
    """Names of four bookies of Apache's, by id."""
    apache.shell("initnewcluster", root=THEIRS)
    names = ["lost-first", "lost-second", "lost-third", "lost-fourth"]
    running = {apache.start_bookie(name, root=THEIRS): name for name in names}
    yield running
    for name in running.values():
        apache.stop_bookie(name)


def test_ours_repairs_apaches_bookies(apache: ApacheBookKeeper, theirs: dict[str, str]) -> None:
    async def story() -> None:
        async with world_of(apache, THEIRS) as world:
            ledger_id, payloads, members = await world.written(100)
            (spare,) = set(theirs) - set(members)
            # As if the spare one had lost its disk: it never got what the metadata say that it has.
            stored = await world.ledgers.read(ledger_id)
            wrong = stored.metadata.with_ensembles(((0, (spare, *members[1:])),))
            await world.ledgers.write(ledger_id, wrong, stored.version)
            options = replace(OPTIONS, check_replicas_s=0.5)
            node = await AutoRecoveryNode.start(world.store, world.tree, SystemClock(), options, QUICK)
            async with asyncio.timeout(60):
                while not node.worker.repaired:
                    await world.next_change()
            await world.until(ledger_id, lambda metadata: metadata.ensembles == wrong.ensembles)
            assert node.replicator.entries_copied == 67
            # Now one of them goes for good, by our command.
            gone = members[1]
            await asyncio.to_thread(apache.stop_bookie, theirs.pop(gone))
            told: list[int] = []
            await Decommission(world.ledgers, world.bookies, world.marks, gone, look_s=0.1).run(told.append)
            assert told[-1] == 0
            assert gone not in await world.bookies.known_bookies()
            await world.until(ledger_id, without(gone))
            await node.close()
            assert await world.read(ledger_id) == payloads

    asyncio.run(story())
