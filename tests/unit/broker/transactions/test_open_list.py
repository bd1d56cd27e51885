"""Open transactions of all brokers, over a broker on fakes that has a part of the coordinators."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.base.names import TopicName
from magnetar.broker.transactions.coordinator import ANYBODY
from magnetar.broker.transactions.discovery import ASSIGN
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept import header_path
from magnetar.broker.transactions.open_list import _YOUNG_MAX, begun_elsewhere, here, open_for
from magnetar.broker.transactions.transaction import Transaction
from support.only_owner import OnlyOwner
from support.sessions import TOPIC, World, in_world
from support.transactions import ON, TxnPeer
from unit.broker.transactions.test_several import in_cluster


async def listed(world: World, numbers: Iterable[int], least_ms: int) -> list[Transaction]:
    return await open_for(world.broker, world.broker.transactions.coordinators, numbers, least_ms)


def test_transactions_of_other_brokers_are_listed_by_their_headers() -> None:
    async def story(world: World, owners: OnlyOwner) -> None:
        client = TxnPeer(world.peer())
        first = await client.begin(coordinator=1)
        world.clock.advance(5_000)
        here_ = await client.begin(coordinator=0)
        await client.add_partitions(first)
        await client.add_subscription(first)
        ended = await client.begin(coordinator=1)
        await client.commit(ended)
        damaged = await client.begin(coordinator=1)
        await world.store.put(header_path(damaged), b"{")
        world.clock.advance(10_000)
        before = await listed(world, range(2), 0)
        owners.away.add(str(ASSIGN.with_partition(1)))
        assert here(world.broker, world.broker.transactions.coordinators, 1) is None
        found = await listed(world, range(2), 0)
        assert [txn.id for txn in found] == [first, here_]
        assert [txn.id for txn in before] == [first, here_, damaged], "in memory its header is good"
        ages = [txn.age_ms(world.broker.clock.monotonic_ms()) for txn in found]
        assert [round(age) for age in ages] == [15_000, 10_000]
        assert found[0].acks[TOPIC].keys() == {"s"}
        assert found[0].topics == {TOPIC}
        assert [txn.id for txn in await listed(world, range(2), 12_000)] == [first]
        assert await listed(world, range(2), 20_000) == []
        last, left = await begun_elsewhere(world.broker, 1)
        assert last >= damaged.sequence
        assert left >= 2
        assert await begun_elsewhere(world.broker, 5) == (-1, 0)
        assert await listed(world, [5], 0) == []

    in_cluster(story)


def test_a_list_of_old_ones_ends_where_all_are_young() -> None:
    async def story(world: World, owners: OnlyOwner) -> None:
        owners.away.add(str(ASSIGN.with_partition(1)))
        now_ms = world.broker.clock.now_ms()

        async def begin(sequence: int, age_ms: int) -> None:
            txn = Transaction(
                TxnId(1, sequence), owner="", ttl_ms=60_000, started_ms=now_ms - age_ms, deadline_ms=0
            )
            await world.store.put(header_path(txn.id), txn.header(parts=True))

        await begin(0, 900)
        for sequence in range(1, _YOUNG_MAX):
            await begin(sequence, 1)
        # Its number was reserved by a former owner of the coordinator.
        await begin(_YOUNG_MAX, 800)
        for sequence in range(_YOUNG_MAX + 1, 2 * _YOUNG_MAX + 3):
            await begin(sequence, 1)
        await begin(9_999, 700)
        assert [txn.id.sequence for txn in await listed(world, [1], 500)] == [0, _YOUNG_MAX]
        assert len(await listed(world, [1], 0)) == 2 * _YOUNG_MAX + 4

    in_cluster(story)


def test_one_broker_alone_reads_no_headers() -> None:
    async def story(world: World) -> None:
        client = TxnPeer(world.peer())
        txn = await client.begin()
        await world.broker.transactions.add_partitions(txn, [(TOPIC, TopicName.parse(TOPIC))], ANYBODY)
        world.store.get = None  # type: ignore[method-assign,assignment]  # it is not asked
        assert [each.id for each in await listed(world, range(16), 0)] == [txn]

    in_world(story, ON)
