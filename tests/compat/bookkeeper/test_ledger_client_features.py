"""Our ledger client over six bookies of Apache's: wide ensembles, tails, forces, slow and bad copies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from magnetar.ledger.api import LedgerEnd, LedgerFencedError
from magnetar.ledger.client.errors import LedgerUnauthorizedError
from magnetar.ledger.client.following import FollowedTail
from magnetar.ledger.client.health import QuarantineOptions
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerHandle, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.wire.bookkeeper.digests import Digester, DigestType, master_key
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status
from support.apache_bookkeeper import ApacheBookKeeper
from support.ledger_clusters import LedgerWorld, Marks
from support.relay import Relay
from support.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("own")]

FIRST_IDS = itertools.count(0, 1_000)
"""The bookies outlive a test: each has ledgers of its own."""
V2, V3 = LedgerClientOptions(call_back_s=0.2), LedgerClientOptions(use_v2=False, call_back_s=0.2)
VERSIONS = pytest.mark.parametrize("options", [V2, V3], ids=["v2", "v3"])
NAMES = ("one", "two", "three", "four", "five", "six")
ROOT = "/client"
OVERWRITES = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"}
"""The sorted storage keeps the first copy of an entry while it has it in memory, whatever comes after it."""


@pytest.fixture(scope="module")
def bookies(apache: ApacheBookKeeper) -> Iterator[dict[str, str]]:
    """Names of bookies by their ids."""
    apache.shell("initnewcluster", root=ROOT)
    yield {apache.start_bookie(name, root=ROOT, more=OVERWRITES): name for name in NAMES}
    for name in NAMES:
        apache.stop_bookie(name)


class Bookies:
    """Apache's, some of them down for a while."""

    def __init__(self, apache: ApacheBookKeeper, names: dict[str, str]) -> None:
        self._apache = apache
        self._names = names
        self._down: list[str] = []

    async def stop(self, bookie: str) -> None:
        name = self._names[bookie]
        self._down.append(name)
        await asyncio.to_thread(self._apache.stop_bookie, name)

    async def start_all(self) -> None:
        while self._down:
            await asyncio.to_thread(self._apache.start_bookie, self._down.pop(), root=ROOT, more=OVERWRITES)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(main())


async def everything(handle: LedgerHandle) -> list[bytes]:
    out: list[bytes] = []
    while len(out) <= handle.last_entry:
        out += [entry.payload for entry in await handle.read(len(out), handle.last_entry, 1 << 16)]
    return out


def two_of(layout: QuorumLayout, ensemble: tuple[str, ...]) -> tuple[str, str]:
    """Members without which every entry still has its acknowledgements, where there are such, else any."""
    pairs = itertools.combinations(range(layout.ensemble_size), 2)
    pair = next((pair for pair in pairs if layout.can_confirm_without(pair)), (0, 1))
    return ensemble[pair[0]], ensemble[pair[1]]


@pytest.mark.parametrize(
    ("quorums", "delay", "options"),
    [
        pytest.param((5, 5, 3), False, V2, id="E5Qw5Qa3-v2"),
        pytest.param((5, 5, 3), True, V3, id="E5Qw5Qa3-delayed-v3"),
        pytest.param((5, 3, 2), False, V3, id="E5Qw3Qa2-v3"),
        pytest.param((5, 3, 2), True, V2, id="E5Qw3Qa2-delayed-v2"),
    ],
)
def test_wide_ensembles_lose_bookies_again_and_again(
    apache: ApacheBookKeeper,
    bookies: dict[str, str],
    quorums: tuple[int, int, int],
    delay: bool,
    options: LedgerClientOptions,
) -> None:
    layout = QuorumLayout(*quorums)

    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        running = Bookies(apache, bookies)
        payloads: list[bytes] = []
        async with world.client(options) as client, world.client(options) as taking:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=layout, delay_ensemble_change=delay), marks)

            async def write(word: bytes) -> None:
                """Enough that every member has its share."""
                more = [b"%b %d" % (word, number) for number in range(40)]
                payloads.extend(more)
                await marks.reach(writer.append(more) + 39)

            await write(b"all")
            first = writer.metadata.ensembles[0][1]
            lost = two_of(layout, first)
            await running.stop(lost[0])
            await write(b"one is down")
            if delay:
                assert len(writer.metadata.ensembles) == 1
            else:
                await eventually(lambda: len(writer.metadata.ensembles) == 2)
            await running.stop(lost[1])
            await write(b"two are down")
            # Four of six are left: the ledger goes on with those.
            assert await everything(writer) == payloads
            if delay:
                await running.start_all()
                await write(b"both are back")
            taken = await taking.open(writer.ledger_id)
            assert taken.last_entry == len(payloads) - 1
            assert taken.length_bytes == sum(map(len, payloads))
            assert await everything(taken) == payloads
            with pytest.raises(LedgerFencedError):
                await write(b"too late")
        await running.start_all()

    run(story)


def test_a_batch_of_entries_comes_in_one_answer(bookies: dict[str, str]) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        # The bookie that is asked has everything, and no other one is asked while its answer is on its way.
        async with world.client(replace(V2, speculative_read_s=0)) as client:
            writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 3)), Marks())
            payloads = [bytes([number]) * 1_000 for number in range(100)]
            writer.append(payloads)
            await writer.close()
            counts = client.cluster.pool.metrics
            before = counts.reads
            assert [entry.payload for entry in await writer.read(0, 99, 1 << 20)] == payloads
            assert (counts.batch_reads, counts.reads - before) == (1, 1)
            some = await writer.read(10, 99, 5_500)
            assert [entry.payload for entry in some] == payloads[10:15]

    run(story)


@VERSIONS
def test_an_open_ledger_is_followed_to_its_end(bookies: dict[str, str], options: LedgerClientOptions) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with world.client(options) as client:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(5, 3, 2)), marks)
            got: list[bytes] = []

            async def follow() -> None:
                handle = await client.open(writer.ledger_id, recover=False)
                async with FollowedTail(handle) as tail:
                    while found := await tail.read():
                        got.extend(entry.payload for entry in found)

            following = asyncio.create_task(follow())
            payloads = [b"%d" % number for number in range(60)]
            for number, payload in enumerate(payloads):
                writer.append([payload])
                await marks.reach(number)
            # What the last entry says; the reader has not fenced anything.
            await eventually(lambda: len(got) >= 59)
            writer.append([b"the end"])
            await writer.close()
            await asyncio.wait_for(following, 30)
            assert got == [*payloads, b"the end"]

    run(story)


def test_bookies_keep_an_explicit_last_add_confirmed(bookies: dict[str, str]) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with world.client(V3) as client, world.client(V2) as old:
            marks = Marks()
            options = LedgerOptions(layout=QuorumLayout(3, 3, 2), explicit_lac_s=0.05, digest=DigestType.HMAC)
            writer = await client.create(options, marks)
            handle = await client.open(writer.ledger_id, recover=False)
            async with FollowedTail(handle) as tail:
                for number in range(3):
                    writer.append([b"%d" % number])
                    (entry,) = await asyncio.wait_for(tail.read(), 30)
                    assert entry.payload == b"%d" % number
            # Every bookie is told by and by; enough of them are asked.
            for _ in range(3_000):
                again = await client.open(writer.ledger_id, recover=False)
                if again.last_entry == 2:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("the last entry is not known")
            # Version 2 cannot ask for it: it knows what entries say.
            assert (await old.open(writer.ledger_id, recover=False)).last_entry == 1

    run(story)


def test_entries_of_deferred_sync_are_confirmed_by_a_force(bookies: dict[str, str]) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with world.client(V3) as client:
            marks = Marks()
            layout = QuorumLayout(3, 2, 2)
            writer = await client.create(LedgerOptions(layout=layout, deferred_sync=True), marks)
            writer.append([b"%d" % number for number in range(10)])
            await eventually(lambda: writer.last_acknowledged == 9)
            assert (writer.last_entry, marks.last) == (-1, -1)
            assert (await client.open(writer.ledger_id, recover=False)).last_entry == -1
            assert await writer.force() == 9
            writer.append([b"10"])
            assert await writer.close() == LedgerEnd(10, 12)
            assert await everything(await client.open(writer.ledger_id)) == [b"%d" % n for n in range(11)]

    run(story)


@VERSIONS
def test_a_copy_that_does_not_come_is_read_from_another_bookie(
    bookies: dict[str, str], options: LedgerClientOptions
) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            relays: dict[str, Relay] = {}
            for bookie in list(bookies)[:3]:
                host, port = bookie.rsplit(":", 1)
                relay = await stack.enter_async_context(Relay((host, int(port))))
                relays["{}:{}".format(*relay.address)] = relay
            world = LedgerWorld(list(relays), first_id=next(FIRST_IDS))
            quick = replace(options, speculative_read_s=0.05, answer_timeout_s=0.5)
            client = await stack.enter_async_context(world.client(quick))
            writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 2)), Marks())
            writer.append([b"%d" % number for number in range(30)])
            await writer.close()
            slow = writer.metadata.ensembles[0][1][0]
            relays[slow].answers.clear()
            counts, health = client.cluster.pool.metrics, client.cluster.pool.health
            (entry,) = await writer.read(0, 0, 100)
            assert entry.payload == b"0"
            assert counts.speculative_reads > 0
            pool = client.cluster.pool
            await eventually(lambda: health.order((slow, "unknown"), (0, 1), pool.now_s) == (1, 0))
            assert [each.payload for each in await writer.read(0, 29, 1 << 16)][:3] == [b"0", b"1", b"2"]
            relays[slow].answers.set()

    run(story)


@VERSIONS
def test_who_fails_again_and_again_is_left_out(bookies: dict[str, str], options: LedgerClientOptions) -> None:
    async def story() -> None:
        # One of them is registered, and no process is there.
        world = LedgerWorld([*list(bookies)[:4], "127.0.0.1:1"], first_id=next(FIRST_IDS))
        quarantine = QuarantineOptions(errors_max=3, slow_s=60.0)
        strict = replace(options, backoff_max_s=0.1, quarantine=quarantine)
        async with world.client(strict) as client:
            health, pool = client.cluster.pool.health, client.cluster.pool
            for _ in range(60):
                if health.quarantined(pool.now_s):
                    break
                writer = await client.create(LedgerOptions(layout=QuorumLayout(3, 3, 2)), Marks())
                writer.append([b"x"])
                await writer.close()
            assert health.quarantined(pool.now_s) == {"127.0.0.1:1"}
            for _ in range(10):
                writer = await client.create(LedgerOptions(layout=QuorumLayout(4, 3, 2)), Marks())
                assert "127.0.0.1:1" not in writer.ensemble
                await writer.close()

    run(story)


async def add_at(client: LedgerClient, bookie: str, ledger_id: int, entries: list[bytes]) -> Status:
    """Adds entries as they are, from 0 on; how that ended."""
    ended: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    class Sink:
        def added(self, entry_ids: object, status: Status) -> None:
            if not ended.done():
                ended.set_result(status)

    run = AddRun(ledger_id, master_key(b""), v3=not client.cluster.options.use_v2)
    run.entry_ids = list(range(len(entries)))
    run.entries = entries
    client.cluster.pool.send_adds(bookie, run, Sink())
    return await ended


async def copy_at(client: LedgerClient, bookie: str, ledger_id: int) -> bytes | None:
    """Entry 0 as one bookie has it."""
    answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    client.cluster.pool.read(bookie, ledger_id, 0, lambda _, entry: answer.set_result(entry))
    return await answer


@VERSIONS
@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_a_bad_copy_is_passed_over_and_made_good(
    bookies: dict[str, str], options: LedgerClientOptions, kind: str
) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        members = tuple(list(bookies)[:3])
        # No other bookie is asked before the first one has answered.
        async with world.client(replace(options, speculative_read_s=0)) as client:
            opened = LedgerMetadata(LedgerState.OPEN, None, ((0, members),), write_quorum=3, ack_quorum=2)
            stored = await world.ledgers.create(opened)
            ledger_id = stored.ledger_id
            digester = Digester(ledger_id, DigestType.CRC32C)
            good = digester.seal(0, -1, 7, b"payload") + b"payload"
            damaged = good[:-1] + b"D"
            for bookie in members[1:]:
                assert await add_at(client, bookie, ledger_id, [good]) is Status.OK
            if kind == "damaged":
                assert await add_at(client, members[0], ledger_id, [damaged]) is Status.OK
            await world.ledgers.write(ledger_id, opened.closed(LedgerEnd(0, 7)), stored.version)
            reader = await client.open(ledger_id)
            assert [entry.payload for entry in await reader.read(0, 0, 100)] == [b"payload"]
            assert client.cluster.pool.metrics.bad_copies == 1
            for _ in range(500):
                if await copy_at(client, members[0], ledger_id) == good:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("the copy was not made good")

    run(story)


@VERSIONS
def test_who_has_another_password_gets_nothing(bookies: dict[str, str], options: LedgerClientOptions) -> None:
    async def story() -> None:
        first_id = next(FIRST_IDS)
        mine, theirs = (LedgerWorld(list(bookies)[:3], first_id=first_id) for _ in range(2))
        layout = QuorumLayout(3, 3, 2)
        async with mine.client(options) as client, theirs.client(options) as other:
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=layout, password=b"mine"), marks)
            writer.append([b"x"])
            await marks.reach(0)
            # Metadata of the same ledger with another password: bookies compare keys.
            wrong = Marks()
            stranger = await other.create(LedgerOptions(layout=layout, password=b"theirs"), wrong)
            assert stranger.ledger_id == writer.ledger_id
            stranger.append([b"y"])
            with pytest.raises(LedgerUnauthorizedError):
                await wrong.reach(0)
            with pytest.raises(LedgerUnauthorizedError):
                await other.open(stranger.ledger_id, b"theirs")
            assert (await writer.close()).last_entry == 0
            assert await everything(await client.open(writer.ledger_id, b"mine")) == [b"x"]

    run(story)


@VERSIONS
def test_several_take_a_ledger_over_at_once(bookies: dict[str, str], options: LedgerClientOptions) -> None:
    async def story() -> None:
        world = LedgerWorld(list(bookies), first_id=next(FIRST_IDS))
        async with (
            world.client(options) as client,
            world.client(options) as one,
            world.client(options) as two,
        ):
            marks = Marks()
            writer = await client.create(LedgerOptions(layout=QuorumLayout(5, 3, 2)), marks)
            writer.append([b"%d" % number for number in range(50)])
            await marks.reach(20)
            taken = await asyncio.gather(*(each.open(writer.ledger_id) for each in (one, two, one, two)))
            (last,) = {handle.last_entry for handle in taken}
            assert last >= marks.last >= 20
            for handle in taken:
                assert await everything(handle) == [b"%d" % number for number in range(last + 1)]
            assert (await one.open(writer.ledger_id)).last_entry == last

    run(story)
