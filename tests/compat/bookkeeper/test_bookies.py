"""Apache's client and shell, and our ledger client, over our bookies and Apache's on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from magnetar.base.clock import ManualClock
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledgers import LedgerClient, LedgerHandle, LedgerOptions
from magnetar.ledger.client.options import ClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from support.apache_bookkeeper import ApacheBookKeeper
from support.bookie_process import BookieProcess
from support.ledger_clusters import Marks

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = "/ours"
SIMPLE_TEST = ("simpletest", "-ensemble", "3", "-writeQuorum", "3")


@pytest.fixture(scope="module")
def bookies(
    apache: ApacheBookKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BookieProcess]]:
    """Three bookies of ours."""
    url = f"zk://{apache.zookeeper}{ROOT}"
    folder = tmp_path_factory.mktemp("bookies")
    running = [BookieProcess(folder / name, url) for name in ("first", "second", "third")]
    try:
        for bookie in running:
            bookie.begin()
        for bookie in running:
            bookie.wait()
        yield running
    finally:
        for bookie in running:
            bookie.stop()


@pytest.mark.parametrize("use_v2", [False, True], ids=["v3", "v2"])
def test_the_shell_writes_fences_recovers_and_reads(
    apache: ApacheBookKeeper, bookies: list[BookieProcess], use_v2: bool
) -> None:
    listed = apache.shell("listbookies", "-rw", root=ROOT)
    assert all(bookie.bookie_id in listed for bookie in bookies)
    said = apache.shell(*SIMPLE_TEST, "-ackQuorum", "2", "-numEntries", "500", root=ROOT, use_v2=use_v2)
    assert "500 entries written" in said


def test_the_shell_finds_a_bookie_sane(apache: ApacheBookKeeper, bookies: list[BookieProcess]) -> None:
    said = apache.shell("bookiesanity", root=ROOT, bookie_port=bookies[0].port)
    assert "sanity test succeeded" in said
    assert bookies[0].bookie_id in apache.shell("bookieinfo", root=ROOT)


def test_an_ensemble_of_both_kinds(apache: ApacheBookKeeper, bookies: list[BookieProcess]) -> None:
    """Every entry needs all three: ours is in every acknowledgement."""
    bookies[1].stop()
    bookies[2].stop()
    names = ("mixed-first", "mixed-second")
    theirs = [apache.start_bookie(name, root=ROOT) for name in names]
    try:
        for use_v2 in (False, True):
            said = apache.shell(
                *SIMPLE_TEST, "-ackQuorum", "3", "-numEntries", "200", root=ROOT, use_v2=use_v2
            )
            assert "200 entries written" in said
        listed = apache.shell("listbookies", "-rw", root=ROOT)
        assert all(bookie in listed for bookie in (*theirs, bookies[0].bookie_id))
    finally:
        for name in names:
            apache.stop_bookie(name)
        for bookie in bookies[1:]:
            bookie.begin()
        for bookie in bookies[1:]:
            bookie.wait()


@asynccontextmanager
async def client_of(apache: ApacheBookKeeper, options: ClientOptions) -> AsyncIterator[LedgerClient]:
    url = parse_metadata_url(f"zk://{apache.zookeeper}{ROOT}")
    store = await open_metadata(url, ManualClock())
    tree = await open_tree(store, url.root)
    cluster = Cluster(TreeLedgerRegistry(store, tree), TreeBookieRegistry(store, tree), options)
    client = LedgerClient(cluster)
    try:
        yield client
    finally:
        await client.close()
        await store.close()


async def payloads_of(handle: LedgerHandle) -> list[bytes]:
    out: list[bytes] = []
    while len(out) <= handle.last_entry:
        out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 20)]
    return out


def test_nothing_acknowledged_is_lost_when_bookies_are_killed(
    apache: ApacheBookKeeper, bookies: list[BookieProcess]
) -> None:
    async def story() -> None:
        options = ClientOptions(answer_timeout_s=2.0)
        async with client_of(apache, options) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(2, 2, 2)), marks)
            victim = next(each for each in bookies if each.bookie_id in writer.metadata.ensembles[0][1])
            written = [b"%d" % number for number in range(600)]
            for first in range(0, 600, 20):
                if first == 300:
                    victim.kill()
                writer.append(written[first : first + 20])
                await marks.reach(first + 19)
            assert len(writer.metadata.ensembles) == 2
            victim.begin()
            await asyncio.to_thread(victim.wait)
            for bookie in bookies:
                bookie.kill()
            for bookie in bookies:
                bookie.begin()
            for bookie in bookies:
                await asyncio.to_thread(bookie.wait)
        async with client_of(apache, options) as client:
            recovered = await client.open(writer.ledger_id)
            assert recovered.last_entry == 599
            assert await payloads_of(recovered) == written

    asyncio.run(story())
