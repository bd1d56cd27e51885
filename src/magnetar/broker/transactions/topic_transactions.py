"""A topic's part in transactions: which of its entries belong to open or aborted ones, and what follows.

Driver: the decisions are in `spans.py` and `pending.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from magnetar.base.clock import Clock
from magnetar.base.errors import LogError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.errors import RefusedError
from magnetar.broker.transactions.coordinator import TTL_MS_MAX
from magnetar.broker.transactions.held_sends import HeldSends
from magnetar.broker.transactions.hidden import pass_all_hidden, pass_hidden
from magnetar.broker.transactions.ids import TxnId, TxnState, txn_id
from magnetar.broker.transactions.kept import KeptTransactions
from magnetar.broker.transactions.scan import entries_of
from magnetar.broker.transactions.spans import TransactionSpans
from magnetar.broker.transactions.stamp import stamped, strangers
from magnetar.broker.transactions.subscription_acks import AbortOf, acks_of
from magnetar.broker.transactions.transaction import Transaction
from magnetar.broker.transactions.txn_rules import TXN_RULES, TxnRules
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log_state import LogState
from magnetar.runtime.tasks import SingleFlight, gathered
from magnetar.wire.events import SendRun, TxnBits

if TYPE_CHECKING:
    from magnetar.base.names import TopicName
    from magnetar.broker.transactions.subscription_acks import AckedSubscription
    from magnetar.managedlog.log import ManagedLog

_log = logging.getLogger("magnetar.broker.transactions")


Lose = Callable[[str, Iterable[TxnId]], None]
"""Told of a topic and of transactions of which it has lost messages: see `Resolving.lose`."""


class TransactionsTopic(Protocol):
    """The topic of these transactions: `topic/topic.py` `Topic`."""

    screen: Callable[[Sequence[bytes]], Mapping[int, RefusedError]] | None

    @property
    def name(self) -> TopicName: ...

    @property
    def log(self) -> ManagedLog: ...

    @property
    def subscriptions(self) -> Mapping[str, AckedSubscription]: ...


class TopicTransactions:
    """The transactions of one loaded topic, from its first one on."""

    def __init__(
        self,
        topic: TransactionsTopic,
        kept: KeptTransactions,
        abort_of: AbortOf,
        lose: Lose,
        clock: Clock,
        rules: TxnRules = TXN_RULES,
    ) -> None:
        self._rules = rules
        self.spans = TransactionSpans(rules.visible())
        self.committed = self.aborted = 0
        """Transactions with entries here that ended so, since the topic was loaded."""
        # A topic that is let go is freed without the garbage collector.
        self._of = ref(topic)
        self._log, self._name = topic.log, str(topic.name)
        self._kept = kept
        self._clock = clock
        self._abort_of = abort_of
        self._lose = lose
        self._lowest: dict[TxnId, dict[str, int]] = {}
        """First sequence numbers of producers in open transactions, where topics drop duplicates."""
        self._found: set[TxnId] = set()
        """Transactions whose entries were found in the log: their sequence numbers are unknown."""
        self.held: HeldSends | None = None
        """SENDs that wait until it is known whether their transactions are the topic's."""
        self._moved = asyncio.Event()
        self._to_keep: set[LedgerId] = set()
        self._unkept = self.spans.visible.unkept
        """Ledgers with newly hidden entries, by transactions for which that is not durable."""
        self._writes: SingleFlight[None] = SingleFlight()
        topic.log.reading.visible = self.spans.visible
        topic.screen = strangers

    @property
    def _subscriptions(self) -> Mapping[str, AckedSubscription]:
        topic = self._of()
        return {} if topic is None else topic.subscriptions

    # -- publishing --------------------------------------------------------------------------------

    def append(self, txn: TxnBits, entries: list[bytes], counts: list[int] | None) -> Position:
        """Appends entries of an open transaction to the topic's log, as `ManagedLog.append` does."""
        id_ = txn_id(txn)
        count = len(entries)
        try:
            position = self._log.append([stamped(entry, id_) for entry in entries], counts)
        except LogError:
            self._lose(self._name, (id_,))
            raise
        self.spans.appended(id_, position, count)
        return position

    def note_use(self, id_: TxnId, producer: str, run: SendRun, last: int) -> bool:
        """Notes the numbers that a transaction uses; returns whether one was used before it.

        Otherwise deduplication would drop the message, and its transaction commit without it. A repetition
        within one transaction is the same message. `last`: the highest number that the topic knows.
        """
        first = min(run.sequence_ids)
        lowest = self._lowest.setdefault(id_, {}).setdefault(producer, first)
        if first < lowest:
            return True
        if first > lowest or first > last or id_ in self._found:
            return False
        used = id_ not in self.spans
        if used:
            del self._lowest[id_][producer]
        return used

    def moved(self) -> None:
        """Entries became durable, or the log failed."""
        self._moved.set()
        if self._log.error is not None:
            # The topic may be loaded anew before these end, and then nothing tells of their entries.
            self._lose(self._name, self.spans.behind(self._log.last_position))

    def begin(self, cursor: Cursor) -> None:
        """A subscription begins."""
        pass_all_hidden(cursor, self.spans.visible)

    def let_through(self) -> None:
        """What was held of a producer waits no longer."""
        self._moved.set()

    def _holds(self, id_: TxnId) -> bool:
        return self.held is not None and self.held.waits(id_)

    async def settled(self, id_: TxnId) -> None:
        """Returns when all messages that the topic accepted of the transaction are durable or lost."""
        log = self._log
        while self._holds(id_) or (
            (last := self.spans.last_of(id_)) is not None and last > log.last_position
        ):
            if log.error is not None or log.state is LogState.CLOSED:
                self._lose(self._name, (id_,))
                return
            self._moved.clear()
            await self._moved.wait()

    # -- the end -----------------------------------------------------------------------------------

    def decided(self, txn: Transaction) -> None:
        """Applies the decision here, at once: messages appear or are hidden, acknowledgements count or are
        taken back. May be repeated."""
        hidden: list[tuple[LedgerId, int, int]] = []
        self._lowest.pop(txn.id, None)
        self._found.discard(txn.id)
        if txn.state is TxnState.COMMITTED:
            self.committed += self.spans.committed(txn.id)
        else:
            hidden = self.spans.aborted(txn.id)
            self.aborted += bool(hidden)
        subscriptions = self._subscriptions
        for name in txn.acks.get(self._name, ()):
            subscription = subscriptions.get(name)
            if subscription is not None and subscription.transactions is not None:
                subscription.transactions.decided(txn, self._clock.now_ms())
        for subscription in subscriptions.values():
            pass_hidden(subscription.cursor, hidden)
            subscription.pump()
        self._moved.set()
        if hidden:
            self._unkept.setdefault(txn.id, set()).update(ledger_id for ledger_id, _, _ in hidden)

    def hides(self, txn: Transaction) -> bool:
        """Whether entries of the transaction are hidden here, and that is not durable."""
        return txn.id in self._unkept

    async def keep(self, txn: Transaction) -> None:
        """Makes durable what the decision means here. Raises MetadataError, LedgerError, LogError."""
        if ledgers := self._unkept.get(txn.id):
            if self._rules.keeps_hidden_first():
                await self._keep_hidden(ledgers)
            self._unkept.pop(txn.id, None)
        if txn.state is TxnState.COMMITTED and self._rules.keeps_cursors_first():
            subscriptions = map(self._subscriptions.get, txn.acks.get(self._name, ()))
            await gathered(self._keep_acks(each, txn.id) for each in subscriptions if each is not None)

    async def _keep_acks(self, subscription: AckedSubscription, id_: TxnId) -> None:
        if subscription.transactions is not None:
            await subscription.transactions.counted(id_)
        await subscription.cursor.flush()

    async def _keep_hidden(self, ledgers: Collection[LedgerId]) -> None:
        self._to_keep.update(ledgers)
        while not self._to_keep.isdisjoint(ledgers):
            # Joined or begun: one that began before may have been without these, then they are there still.
            await self._writes.run(0, self._write_hidden)

    async def _write_hidden(self) -> None:
        # Where it fails, all that wait for it fail too, and are tried again.
        ledgers, self._to_keep = sorted(self._to_keep), set()
        hidden = self.spans.visible.hidden
        await self._kept.hide(self._log.name, {each: hidden[each] for each in ledgers if each in hidden})

    async def trim(self) -> None:
        """Forgets hidden entries of deleted ledgers. Raises MetadataError."""
        gone = self.spans.visible.forget_before(self._log.first_position.ledger_id)
        await self._kept.forget_hidden(self._log.name, gone)

    # -- recovery ----------------------------------------------------------------------------------

    async def recover(
        self, transactions: Collection[Transaction], unknown: Collection[Transaction] = ()
    ) -> None:
        """Recovers an earlier process's state, before the first read. Entries of `unknown` transactions,
        which any topic may have, count as those of open ones. Raises what reading raises."""
        log, name = self._log, self._name
        self.spans.visible.hidden = await self._kept.hidden(log.name)
        searched = {
            txn.id for txn in transactions if txn.state is not TxnState.COMMITTED and name in txn.partitions
        }
        if searched:
            lasts = [txn.partitions[name] for txn in transactions if txn.id in searched]
            start = log.first_position
            if None not in lasts:
                start = max(start, log.next_position(min(last for last in lasts if last is not None)))
        if unknown:
            start = await self._start_of(unknown) if not searched else log.first_position
            searched |= {txn.id for txn in unknown}
        if searched:
            async for id_, position in entries_of(log.reading, searched, start):
                if not self.spans.visible.is_hidden(position):
                    self.spans.appended(id_, position, 1)
                    self._found.add(id_)
        for subscription in self._subscriptions.values():
            pass_all_hidden(subscription.cursor, self.spans.visible)

    async def _start_of(self, unknown: Collection[Transaction]) -> Position:
        """A position before all of their entries: what was stored a day before their headers is older."""
        created_ms = min(txn.started_ms for txn in unknown)
        if not created_ms:
            return self._log.first_position
        return await self._log.position_of_time(created_ms - TTL_MS_MAX)

    def recover_acks(self, transactions: Collection[Transaction]) -> None:
        """Recovers the subscriptions' acknowledgements in these transactions."""
        for txn in self._rules.acks_to_recover(transactions):
            for name, acks in txn.acks.get(self._name, {}).items():
                subscription = self._subscriptions.get(name)
                if subscription is not None and len(acks):
                    acks_of(subscription, self._abort_of).pending.recovered(txn.id, acks)
