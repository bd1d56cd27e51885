"""Our ledger client over three bookies of Apache's, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from magnetar.ledger.api import LedgerEnd, LedgerFencedError
from magnetar.ledger.client.ledger_client import LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import DigestType
from support.apache_bookkeeper import ApacheBookKeeper
from support.ledger_clusters import LedgerWorld, Marks

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

FIRST_IDS = itertools.count(0, 1_000)
"""The bookies outlive a test: each has ledgers of its own."""
VERSIONS = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])


@pytest.fixture(scope="module")
def bookies(apache: ApacheBookKeeper) -> Iterator[dict[str, str]]:
    """Names of bookies by their ids."""
    apache.shell("initnewcluster", root="/apache")
    names = ["first", "second", "third"]
    yield {apache.start_bookie(name, root="/apache"): name for name in names}
    for name in names:
        apache.stop_bookie(name)


@VERSIONS
@pytest.mark.parametrize("digest", list(DigestType), ids=lambda digest: digest.name)
def test_what_is_written_is_read_recovered_and_closed(
    bookies: dict[str, str], digest: DigestType, use_v2: bool
) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        options = LedgerClientOptions(use_v2=use_v2)
        async with world.client(options) as writing, world.client(options) as recovering:
            marks = Marks()
            kept = LedgerOptions(layout=QuorumLayout(3, 3, 2), digest=digest, password=b"secret")
            writer = await writing.create(kept, marks)
            payloads = [bytes([i % 256]) * i for i in range(300)]
            writer.append(payloads[:200])
            await marks.reach(199)
            for payload in payloads[200:]:
                writer.append([payload])
            await marks.reach(299)
            read = await writer.read(0, 299, 1 << 20)
            assert [entry.payload for entry in read] == payloads

            tailing = await recovering.open(writer.ledger_id, b"secret", recover=False)
            assert 199 <= tailing.last_entry <= 299
            recovered = await recovering.open(writer.ledger_id, b"secret")
            assert (recovered.last_entry, recovered.length_bytes) == (299, sum(map(len, payloads)))
            writer.append([b"too late"])
            with pytest.raises(LedgerFencedError):
                await marks.reach(300)
            read = await recovered.read(0, 299, 1 << 20)
            assert [entry.payload for entry in read] == payloads

    asyncio.run(story())


@VERSIONS
def test_entries_are_striped_over_an_ensemble(bookies: dict[str, str], use_v2: bool) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with world.client(LedgerClientOptions(use_v2=use_v2)) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 2, 2)), marks)
            payloads = [b"%d" % i for i in range(100)]
            writer.append(payloads)
            end = await writer.close()
            assert end == LedgerEnd(99, sum(map(len, payloads)))
            reader = await client.open(writer.ledger_id)
            assert [entry.payload for entry in await reader.read(0, 99, 1 << 20)] == payloads
            await client.delete(writer.ledger_id)

    asyncio.run(story())


@VERSIONS
def test_a_bookie_that_goes_is_replaced(
    apache: ApacheBookKeeper, bookies: dict[str, str], use_v2: bool
) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with world.client(LedgerClientOptions(use_v2=use_v2)) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(2, 2, 2)), marks)
            writer.append([b"before"] * 50)
            await marks.reach(49)
            gone = bookies[writer.metadata.ensembles[0][1][0]]
            stopping = asyncio.create_task(asyncio.to_thread(apache.stop_bookie, gone))
            while len(writer.metadata.ensembles) == 1:
                first = writer.append([b"during"] * 5)
                await marks.reach(first + 4)
            await stopping
            writer.append([b"after"] * 50)
            end = await writer.close()
            reader = await client.open(writer.ledger_id)
            read = await reader.read(0, end.last_entry, 1 << 20)
            while read[-1].entry_id < end.last_entry:
                read += await reader.read(read[-1].entry_id + 1, end.last_entry, 1 << 20)
            middle = end.last_entry - 99
            assert [entry.payload for entry in read] == (
                [b"before"] * 50 + [b"during"] * middle + [b"after"] * 50
            )
        await asyncio.to_thread(apache.start_bookie, gone, root="/apache")

    asyncio.run(story())
