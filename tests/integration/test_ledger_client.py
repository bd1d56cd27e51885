"""Our ledger client over our bookies: following open ledgers, explicit marks, forces, delayed changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar.ledger.api import LedgerEnd, LedgerWriteError
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.following import FollowedTail
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions, LedgerWriteHandle
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.client.pool import RecoveryRead
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.registry import StoredLedger
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.store import OutcomeUnknownError
from magnetar.observability.metrics import Exposition
from magnetar.wire.bookkeeper.digests import master_key
from support.bookie_nodes import BookieNodes, bookie_nodes
from support.ledger_clusters import Marks
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")

V2, V3 = LedgerClientOptions(), LedgerClientOptions(use_v2=False, call_back_s=0.1)
VERSIONS = pytest.mark.parametrize("options", [V2, V3], ids=["v2", "v3"])
THREE = QuorumLayout(3, 3, 2)


def run(
    folder: Path,
    story: Callable[[BookieNodes, LedgerClient], Awaitable[None]],
    options: LedgerClientOptions,
    *,
    bookies: int = 3,
) -> None:
    async def main() -> None:
        async with bookie_nodes(folder, bookies) as nodes:
            client = LedgerClient(Cluster(nodes.registry, nodes.bookies, options))
            try:
                async with asyncio.timeout(60):
                    await story(nodes, client)
            finally:
                await client.close()

    asyncio.run(main())


def name_of(nodes: BookieNodes, bookie_id: str) -> str:
    return next(name for name, node in nodes.nodes.items() if node.bookie_id == bookie_id)


@VERSIONS
def test_an_open_ledger_is_followed_to_its_end(tmp_path: Path, options: LedgerClientOptions) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        # Nothing but entries says how far it is confirmed: the last ones come with the close.
        writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 2, 2)), marks)
        handle = await client.open(writer.ledger_id, recover=False)
        got: list[bytes] = []

        async def follow() -> None:
            async with FollowedTail(handle) as tail:
                while found := await tail.read():
                    got.extend(entry.payload for entry in found)

        def has(count: int) -> bool:
            return len(got) >= count

        following = asyncio.create_task(follow())
        for number in range(0, 100, 5):
            writer.append([b"%d" % (number + at) for at in range(5)])
            await marks.reach(number + 4)
            if number in (10, 50):
                # What the last entries say.
                await eventually(partial(has, number))
        await writer.close()
        await following
        assert got == [b"%d" % number for number in range(100)]
        assert handle.is_closed
        assert handle.last_entry == 99

    run(tmp_path, story, options)


@VERSIONS
def test_bookies_that_do_not_wait_are_not_asked_all_the_time(
    tmp_path: Path, options: LedgerClientOptions
) -> None:
    """A ledger with a fence that no client closes: its bookies answer at once, with nothing new."""

    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE), marks)
        writer.append([b"x"])
        await marks.reach(0)
        pool = client.cluster.pool
        for bookie in writer.ensemble:
            fenced = asyncio.Event()
            pool.read(
                bookie,
                writer.ledger_id,
                0,
                lambda *_, done=fenced: done.set(),
                recovery=RecoveryRead(master_key(b"")),
            )
            await fenced.wait()
        handle = await client.open(writer.ledger_id, recover=False)
        async with FollowedTail(handle, 1) as tail:
            before = pool.metrics.reads
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tail.read(), 0.3)
            assert pool.metrics.reads - before < 100
            # Another client comes and closes it.
            reading = asyncio.create_task(tail.read())
            await client.open(writer.ledger_id)
            assert await reading == []

    run(tmp_path, story, options)


def test_readers_see_the_last_entry_of_a_writer_that_pauses(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE, explicit_lac_s=0.05), marks)
        handle = await client.open(writer.ledger_id, recover=False)
        async with FollowedTail(handle) as tail:
            for number in range(3):
                writer.append([b"%d" % number])
                (entry,) = await tail.read()
                assert (entry.entry_id, entry.payload) == (number, b"%d" % number)
        # Every bookie is told by and by, of the last entry and, with what it stores, of the length.
        for _ in range(2_000):
            again = await client.open(writer.ledger_id, recover=False)
            if (again.last_entry, again.length_bytes) == (2, 3):
                break
            await asyncio.sleep(0.01)
        assert (again.last_entry, again.length_bytes) == (2, 3)

    run(tmp_path, story, V3)


@VERSIONS
def test_entries_tell_their_readers_how_far_the_ledger_is_confirmed(
    tmp_path: Path, options: LedgerClientOptions
) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        # The bookies that acknowledge are those that are asked.
        writer = await client.create(LedgerOptions(layout=QuorumLayout(1, 1, 1)), marks)
        handle = await client.open(writer.ledger_id, recover=False)
        assert handle.last_entry == -1
        for number in range(5):
            writer.append([b"x"])
            await marks.reach(number)
        # Entry 4 says that 3 is confirmed.
        assert await handle.try_read_last_confirmed() == 3
        assert await handle.read_last_confirmed() == 3
        assert handle.length_bytes == 4
        writer.append([b"x"])
        await marks.reach(5)
        assert await handle.try_read_last_confirmed() == 4
        (entry,) = await handle.read(4, 4, 10)
        assert entry.last_add_confirmed == 3
        # What a bookie says that is asked for an old one (version 3).
        for number in (6, 7, 8):
            writer.append([b"x"])
            await marks.reach(number)
        await handle.read(0, 0, 10)
        assert handle.last_entry == (7 if handle.can_wait else 4)

    run(tmp_path, story, options)


def test_entries_of_deferred_sync_are_confirmed_by_a_force(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        options = LedgerOptions(layout=THREE, deferred_sync=True)
        writer = await client.create(options, marks)
        writer.append([b"0", b"1", b"2"])
        await eventually(lambda: writer.last_acknowledged == 2)
        assert (writer.last_entry, marks.last) == (-1, -1)
        assert await writer.force() == 2
        assert marks.last == 2
        assert await writer.force() == 2
        writer.append([b"3"])
        # A close makes durable what was not forced.
        assert await writer.close() == LedgerEnd(3, 4)
        reader = await client.open(writer.ledger_id)
        assert [entry.payload for entry in await reader.read(0, 3, 100)] == [b"0", b"1", b"2", b"3"]

        lost = await client.create(options, Marks())
        lost.append([b"x"])
        await lost.force()
        await nodes.stop(name_of(nodes, lost.metadata.ensembles[0][1][1]))
        lost.append([b"y"])
        with pytest.raises(LedgerWriteError):
            await lost.force()

    run(tmp_path, story, V3, bookies=4)


def test_version_2_has_no_deferred_sync(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        for options in (
            LedgerOptions(layout=THREE, deferred_sync=True),
            LedgerOptions(layout=THREE, explicit_lac_s=1.0),
        ):
            with pytest.raises(ValueError, match="version 3"):
                await client.create(options, Marks())

    run(tmp_path, story, V2)


@VERSIONS
def test_a_delayed_change_spares_a_bookie_that_comes_back(
    tmp_path: Path, options: LedgerClientOptions
) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(
            LedgerOptions(layout=QuorumLayout(3, 3, 2), delay_ensemble_change=True), marks
        )
        names = [name_of(nodes, member) for member in writer.ensemble]
        await nodes.stop(names[0])
        writer.append([b"one is away"])
        await marks.reach(0)
        assert len(writer.metadata.ensembles) == 1
        assert client.cluster.pool.metrics.ensemble_changes == 0
        await nodes.stop(names[1])
        writer.append([b"two are away"])
        await marks.reach(1)
        assert not {names[0], names[1]} & {name_of(nodes, each) for each in writer.ensemble}
        assert (await writer.close()).last_entry == 1

    run(tmp_path, story, options, bookies=5)


def test_a_writer_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE, acknowledged_within_s=0.2), marks)
        for number in range(3):
            writer.append([b"x"])
            await marks.reach(number)
        for name in ("a", "b"):
            await nodes.stop(name)
        writer.append([b"y"])
        # A bookie might come back; that takes too long.
        with pytest.raises(LedgerWriteError, match="not acknowledged"):
            await marks.reach(3)

    run(tmp_path, story, LedgerClientOptions(replacement_wait_s=600))


@VERSIONS
def test_a_ledger_is_taken_over_while_a_bookie_is_away(tmp_path: Path, options: LedgerClientOptions) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE), marks)
        writer.append([b"x"] * 10)
        await marks.reach(9)
        await nodes.stop("b")
        taken = await client.open(writer.ledger_id)
        assert taken.last_entry == 9
        assert len(await taken.read(0, 9, 100)) == 10

    run(tmp_path, story, options)


@VERSIONS
def test_one_client_takes_a_ledger_over_several_times_at_once(
    tmp_path: Path, options: LedgerClientOptions
) -> None:
    """The second recovery took the answers of the first, which then waited for ever."""

    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE), marks)
        writer.append([b"x"] * 50)
        await marks.reach(20)
        taken = await asyncio.gather(*(client.open(writer.ledger_id) for _ in range(3)))
        assert len({handle.last_entry for handle in taken}) == 1
        assert client.cluster.pool.metrics.recoveries == 1

    run(tmp_path, story, options)


def test_a_ledger_with_the_oldest_metadata_is_written_and_taken_over(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        members = tuple(node.bookie_id for node in nodes.nodes.values())
        oldest = LedgerMetadata(
            LedgerState.OPEN,
            None,
            ((0, members),),
            write_quorum=2,
            ack_quorum=2,
            digest=None,
            format_version=1,
        )
        stored = await nodes.registry.create(oldest)
        marks = Marks()
        options = LedgerOptions(layout=QuorumLayout(3, 2, 2), password=b"secret")
        writer = LedgerWriteHandle(client.cluster, stored, options, marks)
        writer.append([b"x"] * 10)
        await marks.reach(9)
        reader = await client.open(stored.ledger_id, b"secret")
        assert reader.last_entry == 9
        assert len(await reader.read(0, 9, 100)) == 10
        assert (await nodes.registry.read(stored.ledger_id)).metadata.format_version == 1
        assert writer.ledger_id == stored.ledger_id

    run(tmp_path, story, V2)


def is_replaced(writer: LedgerWriteHandle, bookie: str) -> bool:
    return bookie not in writer.ensemble


class LosesAnswers(TreeLedgerRegistry):
    """Every other replacement of metadata takes effect or not, and the answer is lost."""

    writes = 0

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected_version: int) -> StoredLedger:
        self.writes += 1
        if self.writes % 4 == 3:
            raise OutcomeUnknownError("it did not take effect")
        stored = await super().write(ledger_id, metadata, expected_version)
        if self.writes % 4 == 1:
            raise OutcomeUnknownError("it took effect")
        return stored


def test_lost_answers_of_the_metadata_store_change_nothing(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, _: LedgerClient) -> None:
        ledgers = LosesAnswers(nodes.store, nodes.tree)
        client = LedgerClient(Cluster(ledgers, nodes.bookies, V3))
        marks = Marks()
        writer = await client.create(LedgerOptions(layout=THREE), marks)
        last = -1
        for _ in range(3):
            gone = writer.ensemble[0]
            await nodes.stop(name_of(nodes, gone))
            last = writer.append([b"x"] * 3) + 2
            await marks.reach(last)
            await eventually(partial(is_replaced, writer, gone))
        assert len(writer.metadata.ensembles) == 3
        # The client that takes over marks the ledger, and closes it.
        reader = await client.open(writer.ledger_id)
        assert reader.last_entry == last
        assert len(await reader.read(0, 2, 100)) == 3
        closed = await client.create(LedgerOptions(layout=QuorumLayout(2, 2, 2)), Marks())
        closed.append([b"y"])
        assert (await closed.close()).last_entry == 0
        assert ledgers.writes > 5
        await client.close()

    run(tmp_path, story, V3, bookies=6)


def test_what_it_counts(tmp_path: Path) -> None:
    async def story(nodes: BookieNodes, client: LedgerClient) -> None:
        marks = Marks()
        # The bookie that is asked has everything.
        writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 3)), marks)
        writer.append([b"x"] * 10)
        await marks.reach(9)
        await writer.close()
        await writer.read(0, 9, 1 << 20)
        out = Exposition()
        for _ in client.collect_metrics(out):
            pass
        text = out.render()
        counts = client.cluster.pool.metrics
        assert counts.batch_reads == 1
        assert counts.adds == 30
        assert f'magnetar_ledger_client_adds_total{{success="true"}} {counts.adds}' in text
        assert "magnetar_ledger_client_add_seconds_count" in text
        assert "magnetar_ledger_client_connections 3" in text

    # No other bookie is asked while an answer is on its way.
    run(tmp_path, story, LedgerClientOptions(speculative_read_s=0))
