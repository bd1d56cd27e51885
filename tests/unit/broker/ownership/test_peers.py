"""The table of brokers, and this broker's own record in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.ownership.listing import owners_in
from magnetar.broker.ownership.peers import BrokerIdTakenError, Peers
from magnetar.broker.ownership.place import HERE, TopicPlace
from magnetar.broker.ownership.placement import SentBundles
from magnetar.broker.ownership.records import NAMESPACES, BrokerReport, encode_move, move_path, owner_path
from magnetar.broker.ownership.states import BundleState
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Value
from magnetar.runtime.tasks import TaskGroup, begin
from support.many_brokers import OTHER, OneOfSeveral, urls_of, with_one_of_several
from support.storage import until

LISTS = json.dumps({"advertisedListeners": [1], "webServiceUrl": "http://foreign:1"}).encode()
OF_ANOTHER_NAME = BrokerReport(urls_of("c:1")).encode()


@pytest.mark.parametrize("record", [b"", LISTS, OF_ANOTHER_NAME, b'{"numBundles":1e999}'])
def test_a_record_that_is_not_understood_keeps_no_other_out(
    record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.store.put(keys.broker("foreign:1"), record)
        await api.other_is_there()
        assert set(api.owners.peers.reports) == {"127.0.0.1:8080", OTHER}
        assert "the record of broker foreign:1 is not understood" in caplog.text

    with_one_of_several(story)


def test_an_owner_that_is_not_understood_is_no_error_of_others() -> None:
    async def story(api: OneOfSeveral) -> None:
        name = TopicName.parse("t")
        bundle = await api.owners.bundle_of(name)
        await api.store.put(owner_path(bundle), LISTS)
        await api.store.put(f"{NAMESPACES}/public/default/0xffffff00_0xffffffff", LISTS)
        assert await owners_in(api.store) == {}
        assert await api.owners._look_for(bundle, authoritative=True) is None
        await api.store.delete(owner_path(bundle))
        await api.store.delete(f"{NAMESPACES}/public/default/0xffffff00_0xffffffff")
        assert await api.owners.locate(name, authoritative=True) == HERE

    with_one_of_several(story)


def test_nobody_is_sent_to_a_broker_whose_session_has_ended() -> None:
    """One that hangs accepts connections, and the table is behind: clients would wait there for nothing."""

    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        peers = api.owners.peers
        bundles = [await api.owners.bundle_of(TopicName.parse(f"t{number}")) for number in range(20)]
        bundle = next(each for each in bundles if api.owners._chosen(each) == OTHER)
        place = await api.owners._look_for(bundle, authoritative=False)
        assert place == TopicPlace(urls_of(OTHER), redirect=True)
        api.owners._sent = SentBundles()
        peers.close()  # from here on the table is behind
        await api.store.delete(keys.broker(OTHER))
        assert await api.owners._look_for(bundle, authoritative=False) is None
        await api.store.put(move_path(bundle), encode_move(OTHER))
        assert OTHER in peers.reports
        assert await api.owners._look_for(bundle, authoritative=False) is None

    with_one_of_several(story)


def test_an_own_report_does_not_forget_what_others_were_sent() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        owners = api.owners
        bundles = [await owners.bundle_of(TopicName.parse(f"t{number}")) for number in range(20)]
        bundle = next(each for each in bundles if owners._chosen(each) == OTHER)
        await owners._look_for(bundle, authoritative=False)
        await owners.reporting.round()
        assert owners._sent.since(owners.peers.reports[OTHER]) == 1

    with_one_of_several(story)


# -- one id, one process ---------------------------------------------------------------------------

OWN = keys.broker(OTHER)
SEEN = "another process is known as b:8080"


class OfAnotherSession(MemoryMetadataStore):
    """Everything was written in the session of another process."""

    gate: asyncio.Event | None = None
    """What the next reading of a table has found arrives when this is set."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.read: list[str] = []
        """Paths that were asked for."""

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        return names

    async def get(self, path: str) -> Value | None:
        self.read.append(path)
        value = await super().get(path)
        if value is None:
            return None
        return Value(value.data, value.stat._replace(created_by_self=False))


Story = Callable[[Peers, OfAnotherSession, ManualClock], Awaitable[None]]


def with_peers(former: str | None, story: Story) -> None:
    """`former`: the listening socket in the record that is there; None: there is none."""

    async def alive(_host: str, _port: int) -> bool:
        return False

    async def run() -> None:
        clock, tasks = ManualClock(), TaskGroup("test")
        store = OfAnotherSession(clock)
        if former is not None:
            await store.put(OWN, report(former))
        peers = Peers(
            store, OTHER, socket="mine", clock=clock, probe=alive, spawn=tasks.spawn, changed=lambda: None
        )
        try:
            await story(peers, store, clock)
        finally:
            peers.close()
            await tasks.close()

    asyncio.run(run())


def report(socket: str) -> bytes:
    return BrokerReport(urls_of(OTHER), socket=socket).encode()


MINE = BrokerReport(urls_of(OTHER), socket="mine")


def test_the_record_of_an_earlier_life_is_replaced_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        await peers.show(MINE)
        assert peers.shown
        assert SEEN not in caplog.text
        await peers.leave()
        assert await store.get(OWN) is None

    with_peers("mine", story)


def test_a_reading_that_began_before_the_own_record_was_there_is_dropped() -> None:
    """It ended last, and the broker answered 404 about itself until the next reading."""

    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        peers.close()  # only the readings of this test
        store.gate = gate = asyncio.Event()
        earlier = begin(peers.load())
        await until(lambda: store.gate is None)
        await peers.show(MINE)
        await peers.load()
        gate.set()
        await earlier
        assert set(peers.reports) == {OTHER}

    with_peers(None, story)


def test_a_report_of_one_broker_has_no_other_read() -> None:
    """Each broker read all records for each report: N brokers asked the metadata service N³ times."""

    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        for name in ("a:1", "b:1", "c:1"):
            await store.put(keys.broker(name), BrokerReport(urls_of(name)).encode())
        await until(lambda: set(peers.reports) == {"a:1", "b:1", "c:1"})
        store.read.clear()
        told = BrokerReport(urls_of("b:1"), draining=True)
        await store.put(keys.broker("b:1"), told.encode())
        await until(lambda: peers.reports["b:1"] == told)
        await store.delete(keys.broker("c:1"))
        await until(lambda: "c:1" not in peers.reports)
        assert store.read == [keys.broker("b:1"), keys.broker("c:1")]
        assert set(peers.reports) == {"a:1", "b:1"}

    with_peers(None, story)


def test_a_record_that_is_read_during_a_reading_of_all_is_the_newer_one() -> None:
    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        await store.put(keys.broker("a:1"), BrokerReport(urls_of("a:1")).encode())
        await until(lambda: set(peers.reports) == {"a:1"})
        store.gate = gate = asyncio.Event()
        earlier = begin(peers.load())
        await until(lambda: store.gate is None)
        await store.put(keys.broker("b:1"), BrokerReport(urls_of("b:1")).encode())
        await until(lambda: "b:1" in peers.reports)
        gate.set()
        await earlier
        assert set(peers.reports) == {"a:1", "b:1"}

    with_peers(None, story)


async def begun(peers: Peers, caplog: pytest.LogCaptureFixture) -> asyncio.Task[None]:
    """Showing the record, which waits for the other one."""
    task = begin(peers.show(MINE))
    await until(lambda: SEEN in caplog.text)
    return task


# An older version does not tell its socket.
@pytest.mark.parametrize("socket", ["another", ""])
def test_the_id_of_a_broker_that_writes_reports_is_refused(
    socket: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        task = await begun(peers, caplog)
        await store.put(OWN, report(socket))
        with pytest.raises(BrokerIdTakenError, match=r"b:8080.*--advertised-address or --http-port"):
            await task
        value = await store.get(OWN)
        assert value is not None
        assert value.data == report(socket)
        assert not peers.shown

    with_peers(socket, story)


def test_the_id_of_a_session_that_lasts_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def story(peers: Peers, _store: OfAnotherSession, clock: ManualClock) -> None:
        task = await begun(peers, caplog)
        clock.advance(30_000)
        with pytest.raises(BrokerIdTakenError):
            await task

    with_peers("another", story)


def test_the_id_of_a_session_that_ends_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def story(peers: Peers, store: OfAnotherSession, _clock: ManualClock) -> None:
        task = await begun(peers, caplog)
        await store.delete(OWN)
        await task
        assert peers.shown

    with_peers("another", story)


def test_owners_of_this_id_are_left_alone_until_the_id_is_had() -> None:
    async def story(api: OneOfSeveral) -> None:
        bundle = await api.owners.bundle_of(TopicName.parse("t"))
        await api.store.put(owner_path(bundle), api.owners.urls.encode())
        api.owners.peers.session_lost()
        assert await api.owners._look_for(bundle, authoritative=True) is None
        assert api.owners.ownership.state(bundle) is BundleState.UNOWNED
        await api.owners.reporting.show()
        assert await api.owners._look_for(bundle, authoritative=True) is None
        assert api.owners.ownership.state(bundle) is BundleState.OWNED

    with_one_of_several(story)
