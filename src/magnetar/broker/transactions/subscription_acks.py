"""A subscription's part in transactions: what it acknowledges in them, and what becomes of that."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from magnetar.base.ids import Position
from magnetar.broker.errors import NotAllowedError, TransactionConflictError
from magnetar.broker.subscription.any_subscription import SubscriptionType
from magnetar.broker.transactions.acks import TxnAcks
from magnetar.broker.transactions.ids import TxnId, TxnState
from magnetar.broker.transactions.pending import PendingAcks, PendingView
from magnetar.broker.transactions.transaction import POSITION_BYTES, Transaction
from magnetar.managedlog.cursors.ack_words import words_of_bits
from magnetar.wire.events import AckEvent

if TYPE_CHECKING:
    from magnetar.base.loop_shares import LoopShares
    from magnetar.base.names import TopicName
    from magnetar.broker.compaction.compacted_source import CompactedSource
    from magnetar.broker.dispatch.dispatcher import Dispatcher
    from magnetar.broker.filters.filtered_source import ScreenedPlace
    from magnetar.broker.subscription.any_subscription import AnySubscription, AttachedConsumer
    from magnetar.broker.subscription.tally import Tally
    from magnetar.managedlog.cursors.cursor import Cursor

ACKS_MAX = 20_000
"""Entries and batches that a transaction may name in all subscriptions: its header stays small."""
PIECE_MAX: Final = 128
"""Entries and batches of a decided transaction that count, or go back, at once: a millisecond of work."""


AbortOf = Callable[[str, str, str], Awaitable[None]]
"""Aborts what is open in a subscription: topic, subscription, reason. See `Transactions.abort_of`."""


class AckedSubscription(Protocol):
    """The subscription of these acknowledgements: `subscription/subscription.py` `Subscription`."""

    topic: TopicName
    name: str
    tally: Tally
    transactions: SubscriptionAcks | None
    turns: LoopShares
    """Shares of the broker's turns, for work that takes more than one."""

    @property
    def type(self) -> SubscriptionType: ...

    @property
    def acks(self) -> Cursor | CompactedSource: ...

    @property
    def cursor(self) -> Cursor: ...

    @property
    def mark_delete(self) -> Position: ...

    def place(self) -> ScreenedPlace: ...

    def pump(self) -> None: ...


class _Counting:
    """A committed transaction whose acknowledgements become the cursor's."""

    __slots__ = ("acks", "left", "now_ms")

    def __init__(self, acks: TxnAcks, now_ms: int) -> None:
        self.acks = acks
        self.left = [*acks.whole, *acks.parts]
        """A heap of what does not count yet."""
        heapq.heapify(self.left)
        self.now_ms = now_ms


class SubscriptionAcks:
    """The acknowledgements of one subscription, from the first one in a transaction on."""

    def __init__(self, subscription: AckedSubscription, abort_of: AbortOf) -> None:
        self._of = ref(subscription)
        self._abort_of = abort_of
        self.pending = PendingAcks()
        self._counting: dict[TxnId, _Counting] = {}
        """Committed transactions whose acknowledgements become the cursor's, the oldest first."""
        self._moved = asyncio.Event()
        self._came_back = False
        """Whether anything of the transaction that is being given back is to be sent again."""

    @property
    def view(self) -> PendingView:
        """For dispatchers, in place of the cursor's acknowledgements."""
        return PendingView(self._subscription.acks, self.pending)

    def attached(self, dispatcher: Dispatcher) -> None:
        """The subscription has a dispatcher, a new one or its last."""
        if self.pending:
            dispatcher.see(self.view)

    def acknowledge(self, txn: Transaction, consumer: AttachedConsumer, event: AckEvent, now_ms: int) -> None:
        """Records a consumer's acknowledgements; the caller makes them durable with the transaction's header.

        Raises TransactionConflictError, NotAllowedError.
        """
        subscription, topic = self._subscription, str(self._subscription.topic)
        shared = subscription.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
        if event.cumulative and shared:
            raise NotAllowedError(
                "cumulative acknowledgement is not allowed on Shared and Key_Shared subscriptions"
            )
        known = txn.acks[topic][subscription.name]
        named = sum(len(acks) for each in txn.acks.values() for acks in each.values())
        if named + len(event.positions) + len(event.batch_acks or ()) > ACKS_MAX:
            raise NotAllowedError(f"a transaction acknowledges {ACKS_MAX} entries at most")
        # Words of 64 bits, as decimal numbers.
        words = sum(20 * (-(-size // 64)) for _, _, size in event.batch_acks or ())
        txn.grow(POSITION_BYTES * (len(event.positions) + len(event.batch_acks or ())) + words)
        if event.cumulative:
            self._acknowledge_upto(txn, known, event)
        else:
            messages = self._acknowledge_each(txn, known, consumer, event)
            subscription.tally.acknowledged(consumer, messages, now_ms)
        txn.changed()
        subscription.pump()

    def _acknowledge_each(
        self, txn: Transaction, known: TxnAcks, consumer: AttachedConsumer, event: AckEvent
    ) -> int:
        subscription = self._subscription
        cursor, parts = subscription.acks, event.batch_acks or []
        taken = self.pending.add(txn.id, known, event.positions, parts, cursor)
        messages = 0
        dispatcher = subscription.place().dispatcher
        if dispatcher is not None:
            dispatcher.see(self.view)
            messages = dispatcher.acked(consumer, taken)
            left_of = self.pending.left_of
            lefts = {position: left for position, _, _ in parts if (left := left_of(position, cursor))}
            if lefts:
                counts = {position: left.bit_count() for position, left in lefts.items()}
                messages += dispatcher.acked_parts(consumer, counts)
        return messages

    def _acknowledge_upto(self, txn: Transaction, known: TxnAcks, event: AckEvent) -> None:
        places: list[tuple[Position, tuple[tuple[int, ...], int] | None]] = [
            (at, None) for at in event.positions
        ]
        places += [(at, (words, size)) for at, words, size in event.batch_acks or ()]
        if len(places) != 1:
            raise NotAllowedError("a cumulative acknowledgement in a transaction names one message")
        at, part = places[0]
        self.pending.add_upto(txn.id, known, at, part, self._subscription.acks)
        if (dispatcher := self._subscription.place().dispatcher) is not None:
            dispatcher.see(self.view)

    @property
    def _subscription(self) -> AckedSubscription:
        found = self._of()
        assert found is not None, "it is asked by its subscription"
        return found

    async def end(self, reason: str) -> None:
        """Before the subscription is moved or deleted: aborts open transactions, and returns when all
        decisions are durable, so that the move has the last word also after a crash."""
        await self._abort_of(str(self._subscription.topic), self._subscription.name, reason)

    def decided(self, txn: Transaction, now_ms: int) -> None:
        """The transaction has committed, and its messages are acknowledged; or it was aborted, and they are
        delivered again: a piece in a turn where there are many. May be repeated."""
        waits = self._is_at_work
        if txn.state is TxnState.COMMITTED:
            acks = self.pending.of.get(txn.id)
            if acks is None or txn.id in self._counting:
                return
            # Until its piece an entry stays pending: it is not delivered, and in no other transaction.
            self._counting[txn.id] = _Counting(acks, now_ms)
        else:
            acks = self.pending.give_back(txn.id)
            if acks is None:
                return
            self._came_back = self._came_back or acks.upto is not None
        if waits:
            return
        if len(acks) <= PIECE_MAX:
            self.go_on()
        else:
            self._wait()

    async def counted(self, txn_id: TxnId) -> None:
        """Returns when all that a committed transaction acknowledged is acknowledged in the cursor."""
        while txn_id in self._counting:
            self._moved.clear()
            await self._moved.wait()

    @property
    def _is_at_work(self) -> bool:
        return bool(self._counting or self.pending.goes_back)

    def _wait(self) -> None:
        subscription = self._subscription
        subscription.turns.wait(f"tenant {subscription.topic.tenant}", self)

    def go_on(self) -> None:
        """A piece of what a decided transaction acknowledged counts, or is given back: its turn has come."""
        subscription = self._of()
        if subscription is None:
            return
        if self._counting:
            self._count_piece(*next(iter(self._counting.items())))
            self._see()
        else:
            given, last = self.pending.given_back(PIECE_MAX)
            self._see()
            self._give_again(given, last=last)
        subscription.pump()
        if self._is_at_work:
            self._wait()

    def _see(self) -> None:
        """The dispatcher asks the cursor again, once nothing is pending."""
        dispatcher = self._subscription.place().dispatcher
        if not self.pending and dispatcher is not None:
            dispatcher.see(self._subscription.acks)

    def _count_piece(self, txn_id: TxnId, counting: _Counting) -> None:
        subscription = self._subscription
        cursor, before = subscription.acks, subscription.mark_delete
        acks, left = counting.acks, counting.left
        whole = []
        for _ in range(min(PIECE_MAX, len(left))):
            position = heapq.heappop(left)
            bits, size = acks.parts.get(position, (0, 0))
            if rest := ((1 << size) - 1) & ~bits:
                cursor.ack_batch(position, words_of_bits(rest), size)
            else:
                whole.append(position)
        if whole:
            cursor.ack(whole)
        if not left:
            self._count_upto(acks)
            self.pending.take(txn_id)
            del self._counting[txn_id]
            self._moved.set()
        if subscription.mark_delete != before:
            subscription.tally.advanced_ms = counting.now_ms

    def _count_upto(self, acks: TxnAcks) -> None:
        cursor = self._subscription.acks
        if acks.upto is not None and acks.upto_part is None:
            cursor.ack_cumulative(acks.upto)
        elif acks.upto is not None and acks.upto_part is not None:
            bits, size = acks.upto_part
            cursor.ack_cumulative_batch(acks.upto, words_of_bits(((1 << size) - 1) & ~bits), size)

    def _give_again(self, given: list[Position], *, last: bool) -> None:
        subscription = self._subscription
        # The cursor alone is asked in a third of the time, which counts: these may be thousands.
        is_acked = self.view.is_acked if self.pending else subscription.acks.is_acked
        again = [at for at in given if not is_acked(at)]
        dispatcher = subscription.place().dispatcher
        if again:
            subscription.cursor.redelivered(again)
        self._came_back = self._came_back or bool(again)
        if dispatcher is not None and self._came_back:
            dispatcher.again(again, last=last)
        if last:
            self._came_back = False


def acks_of(subscription: AckedSubscription, abort_of: AbortOf) -> SubscriptionAcks:
    """The subscription's part in transactions, made when it is first asked for."""
    if subscription.transactions is None:
        subscription.transactions = SubscriptionAcks(subscription, abort_of)
    return subscription.transactions


def check_unmoved(listed: Mapping[str, AnySubscription], subscription: AnySubscription, begun: int) -> None:
    """After a wait: a seek or a deletion has the last word over acknowledgements from before it.

    `listed`: the topic's subscriptions now; `begun`: the seeks that had begun before the wait
    (`SeekFence.begun`). Raises TransactionConflictError.
    """
    if listed.get(subscription.name) is not subscription:
        raise TransactionConflictError(f"subscription {subscription.name} was deleted or unloaded meanwhile")
    if subscription.seeks.begun != begun:
        raise TransactionConflictError(f"a seek moved subscription {subscription.name} meanwhile")
