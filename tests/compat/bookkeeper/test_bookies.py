"""Apache's client and shell, and our ledger client, over our bookies and Apache's on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest

from magnetar.base.clock import ManualClock
from magnetar.ledger.api import LedgerFencedError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from support.apache_bookkeeper import ApacheBookKeeper
from support.bookie_process import BookieProcess
from support.ledger_clusters import Marks

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

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


def test_the_shell_takes_a_ledger_over_and_shows_it(
    apache: ApacheBookKeeper, bookies: list[BookieProcess]
) -> None:
    async def story() -> None:
        async with client_of(apache, LedgerClientOptions()) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 2)), marks)
            writer.append([b"said %d" % number for number in range(50)])
            await marks.reach(49)
            words = ("-ledgerid", str(writer.ledger_id))
            shell = partial(asyncio.to_thread, partial(apache.shell, root=ROOT))
            said = await shell("ledgermetadata", *words)
            assert "ensembleSize=3, writeQuorumSize=3, ackQuorumSize=2, state=OPEN" in said
            assert all(bookie.bookie_id in said for bookie in bookies)
            read = await shell("readledger", *words, "-m", "-r")
            assert all(f"said {number}" in read for number in (0, 49)), read[:500]
            writer.append([b"too late"])
            with pytest.raises(LedgerFencedError):
                await marks.reach(50)
            # One bookie's copy, of a ledger that is closed now.
            bounds = ("-firstentryid", "0", "-lastentryid", "50")
            one = await shell("readledger", *words, *bounds, "-m", "-b", bookies[0].bookie_id)
            assert "said 49" in one
            assert "too late" not in one
            said = await shell("ledgermetadata", *words)
            assert "state=CLOSED" in said
            assert "lastEntryId=49" in said

    asyncio.run(story())


@contextmanager
def of_both_kinds(
    apache: ApacheBookKeeper, bookies: list[BookieProcess], theirs: int
) -> Iterator[tuple[list[BookieProcess], list[str]]]:
    """Three bookies, so many of them Apache's: ours that are left, and names of theirs."""
    names = [f"mixed-{theirs}-{number}" for number in range(theirs)]
    for bookie in bookies[3 - theirs :]:
        bookie.stop()
    for name in names:
        apache.start_bookie(name, root=ROOT)
    try:
        yield bookies[: 3 - theirs], names
    finally:
        for name in names:
            apache.stop_bookie(name)
        for bookie in bookies[3 - theirs :]:
            bookie.begin()
        for bookie in bookies[3 - theirs :]:
            bookie.wait()


@pytest.mark.parametrize("theirs", [2, 1])
def test_an_ensemble_of_both_kinds(
    apache: ApacheBookKeeper, bookies: list[BookieProcess], theirs: int
) -> None:
    """Every entry needs all three: both kinds are in every acknowledgement."""
    with of_both_kinds(apache, bookies, theirs) as (ours, names):
        for use_v2 in (False, True):
            said = apache.shell(
                *SIMPLE_TEST, "-ackQuorum", "3", "-numEntries", "200", root=ROOT, use_v2=use_v2
            )
            assert "200 entries written" in said
        listed = apache.shell("listbookies", "-rw", root=ROOT)
        assert all(bookie.bookie_id in listed for bookie in ours)

        async def story() -> None:
            # No bookie can take the place of one that is away: the writer waits for it.
            options = LedgerClientOptions(answer_timeout_s=2.0, replacement_wait_s=60.0)
            async with client_of(apache, options) as client:
                marks = Marks()
                writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 3)), marks)
                written = [b"%d" % number for number in range(300)]
                writer.append(written[:100])
                await marks.reach(99)
                ours[0].kill()
                writer.append(written[100:200])
                ours[0].begin()
                await marks.reach(199, 60)
                await asyncio.to_thread(apache.stop_bookie, names[0])
                writer.append(written[200:])
                await asyncio.to_thread(apache.start_bookie, names[0], ROOT)
                await marks.reach(299, 60)
            async with client_of(apache, options) as client:
                recovered = await client.open(writer.ledger_id)
                assert recovered.last_entry == 299
                assert await payloads_of(recovered) == written

        asyncio.run(story())


@asynccontextmanager
async def client_of(apache: ApacheBookKeeper, options: LedgerClientOptions) -> AsyncIterator[LedgerClient]:
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
        options = LedgerClientOptions(answer_timeout_s=2.0)
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
