"""What happens to dispatch and to acknowledgements when storage stalls or surprises."""

from __future__ import annotations

import pytest

from fakes.ledgers import FakeReader
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.session.ack_receipts import WAITING_MAX, AckReceipts
from magnetar.broker.subscription.any_subscription import READ_AGAIN_MS
from support.seen import Type
from support.sessions import World, command, in_world, send


class Connection:
    def __init__(self) -> None:
        self.holds: set[object] = set()

    def throttle(self, reason: object) -> None:
        self.holds.add(reason)

    def unthrottle(self, reason: object) -> None:
        self.holds.remove(reason)


def test_a_connection_that_waits_for_too_many_receipts_is_not_read_until_half_are_gone() -> None:
    connection = Connection()
    receipts = AckReceipts(connection)
    for _ in range(WAITING_MAX):
        receipts.asked()
    assert not connection.holds
    receipts.asked()
    assert connection.holds
    while receipts.waiting > WAITING_MAX // 2 + 1:
        receipts.answered()
    assert connection.holds
    receipts.answered()
    assert not connection.holds


def test_receipts_of_acknowledgements_are_bounded_while_the_disk_stalls() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(permits=10)
        peer.send(send(1, 0))
        await world.until(lambda: peer.messages, "the message")
        world.ledgers.auto_sync = False
        (position,) = [Position(*receipt[2]) for receipt in peer.receipts]

        def ack(request_id: int) -> bytes:
            body = {
                "consumer_id": 1,
                "ack_type": 0,
                "request_id": request_id,
                "message_id": [{"ledgerId": position.ledger_id, "entryId": position.entry_id}],
            }
            return command(Type.ACK, **body)

        peer.send(*(ack(number) for number in range(1_000, 1_000 + WAITING_MAX)))
        await world.settle()
        assert peer.reading
        peer.send(ack(10_000))
        await world.settle()
        assert not peer.reading
        world.ledgers.auto_sync = True
        world.ledgers.sync()
        await world.until(lambda: peer.find_answer(10_000), "the last receipt")
        assert peer.reading

    in_world(story)


def test_dispatch_goes_on_after_a_read_that_ended_with_something_unexpected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        peer.send(send(1, 0))
        topic = await world.topic()
        await world.until(lambda: topic.log.entry_count == 1, "stored")
        world.ledgers.reads_wait = True
        await world.broker.unload(topic.name)
        topic = await world.topic()
        errors = [RuntimeError("a bug")]
        read = FakeReader.read

        async def failing(self: FakeReader, first: int, last: int, bytes_max: int) -> list[EntryRun]:
            if errors:
                raise errors.pop()
            return await read(self, first, last, bytes_max)

        monkeypatch.setattr(FakeReader, "read", failing)
        reader = world.peer()
        await reader.consumer(permits=10)
        await world.settle()
        subscription = topic.subscriptions["s"]
        assert "a bug" in subscription.view().obstacle
        assert not subscription.view().reading
        world.clock.advance(READ_AGAIN_MS)
        subscription.pump()
        await world.until(lambda: reader.messages, "the message")

    in_world(story)
