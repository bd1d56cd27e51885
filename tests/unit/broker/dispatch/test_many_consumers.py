"""What one command names is looked for once at each consumer, however many entries it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

from magnetar.base.ids import ConsumerId, LedgerId, Position
from magnetar.broker.dispatch.consumer import Consumer, ConsumerOutlet, Pending
from magnetar.broker.dispatch.dispatcher import AckView
from magnetar.broker.dispatch.shared import SharedDispatcher

ENTRIES: Final = [Position(LedgerId(0), number) for number in range(300)]
CONSUMERS: Final = 50


class CountedPending(dict[Position, Pending]):
    """Counts the single looks into it."""

    looks = 0

    def get(self, *position: Any) -> Any:
        CountedPending.looks += 1
        return super().get(*position)

    def pop(self, *position: Any) -> Any:
        CountedPending.looks += 1
        return super().pop(*position)

    def __contains__(self, position: object) -> bool:
        CountedPending.looks += 1
        return super().__contains__(position)


def crowd() -> SharedDispatcher:
    """Fifty consumers; the last one holds the first ten entries, of two messages each."""
    acks = SimpleNamespace(may_know_from=lambda _: False, is_acked=lambda _: False)
    dispatcher = SharedDispatcher(cast("AckView", acks), Position(LedgerId(0), 1_000))
    for number in range(CONSUMERS):
        pending = CountedPending()
        dispatcher.add(
            Consumer(ConsumerId(number), str(number), cast("ConsumerOutlet", None), pending=pending)
        )
    holder = dispatcher.consumers[-1]
    holder.pending.update(dict.fromkeys(ENTRIES[:10], Pending(2)))
    holder.unacked = dispatcher.unacked.total = 20
    CountedPending.looks = 0
    return dispatcher


def test_an_acknowledgement_of_what_others_hold_asks_each_consumer_once() -> None:
    dispatcher = crowd()
    assert dispatcher.acked(dispatcher.consumers[0], ENTRIES) == 20
    assert CountedPending.looks <= len(ENTRIES) + CONSUMERS
    assert not dispatcher.consumers[-1].pending
    assert dispatcher.consumers[-1].unacked == dispatcher.unacked.total == 0


def test_an_acknowledgement_of_parts_of_batches_does_too() -> None:
    dispatcher = crowd()
    assert dispatcher.acked_parts(dispatcher.consumers[0], dict.fromkeys(ENTRIES, 1)) == 10
    assert CountedPending.looks <= 2 * len(ENTRIES) + CONSUMERS
    assert set(dispatcher.consumers[-1].pending.values()) == {Pending(1)}
    assert dispatcher.consumers[-1].unacked == dispatcher.unacked.total == 10


def test_what_an_aborted_transaction_gives_back_does_too() -> None:
    dispatcher = crowd()
    dispatcher.again(ENTRIES)
    assert CountedPending.looks <= len(ENTRIES) + CONSUMERS
    assert dispatcher.again_count == len(ENTRIES)
    assert not dispatcher.consumers[-1].pending
    dispatcher.again(ENTRIES)
    assert dispatcher.again_count == len(ENTRIES), "each waits once"
    dispatcher.check()
