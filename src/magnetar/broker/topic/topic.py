"""A persistent topic: producers, the publish path, subscriptions.

Driver of `StoredPublishing`, which admits a vector of entries, appends it to the managed log and records the
waiting producers; `appended` is called when it is durable, sends the receipts and pumps the subscriptions in
the same turn. Driver of `SubscriptionLife` too, which orders subscribing, seeks and deletions of a name: the
topic opens and deletes cursors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Final, Literal
from weakref import ref

from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError, disk_full
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.base.weak import weakly
from magnetar.broker.access.access_state import Admission
from magnetar.broker.access.producer_access import ProducerAccess
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.dedup.deduplication import Deduplication
from magnetar.broker.errors import ServiceNotReadyError, TopicTerminatedError
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic import places
from magnetar.broker.topic.any_topic import AnyTopic, ReaderStart
from magnetar.broker.topic.disk_mark import DiskMark, RoomWait
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.stored_publishing import StoredPublishing
from magnetar.broker.topic.subscription_life import Next, SubscriptionLife
from magnetar.broker.topic.topic_resources import TopicResources
from magnetar.broker.topic.unanswered import ReceiptLine
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.managedlog.config import UNLIMITED
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.runtime.tasks import SingleFlight, called_back

_log = logging.getLogger("magnetar.broker.topic")

DEDUP_CURSOR: Final = "pulsar.dedup"
"""Cursor that holds the deduplication snapshot (Pulsar's name)."""


class Topic(AnyTopic):
    """One persistent topic or partition."""

    publishing: StoredPublishing

    def __init__(
        self,
        name: TopicName,
        log: ManagedLog,
        resources: TopicResources,
        *,
        disk: DiskMark,
        subscription: type[Subscription] = Subscription,
        line: ReceiptLine | None = None,
    ) -> None:
        """`line`: of the receipts that it owes; None: an empty one."""
        clock, alarms, spawn = resources.clock, resources.alarms, resources.spawn
        self._room = RoomWait(alarms, log.has_room, weakly(self._room_again))
        path = partial(StoredPublishing, name, log, self._room, line=line)
        super().__init__(name, ProducerAccess(log, spawn), clock, path)
        self._subscription = subscription
        self._disk = disk
        self.log, self._resources = log, resources
        self._life: SubscriptionLife[Subscription] = SubscriptionLife(name, self.publishing)
        self.subscriptions: dict[str, Subscription] = self._life.subscriptions
        self._dedup: Deduplication | None = None
        self._transactions: TopicTransactions | None = None
        self._spawn = spawn
        self._drops: SingleFlight[None] = SingleFlight()
        """Subscriptions that are being deleted."""
        me = ref(self)

        def closed() -> bool:
            return (topic := me()) is None or topic.closed

        self.compaction = TopicCompaction(name, log, clock=clock, spawn=spawn, closed=closed)
        assert log.listener is None, f"{name} has an object already, which hears of its log"
        log.listener = self

    # -- producers ---------------------------------------------------------------------------------

    def attach_producer(self, producer: Producer) -> Admission:
        """Adds a producer, as every topic does.

        Raises TopicTerminatedError too, and ServiceNotReadyError while the disk is full, or nearly so.
        """
        if self.log.terminated is not None:
            raise TopicTerminatedError(f"{self.name} is terminated and takes no more messages")
        self._room.check()
        self._disk.check()
        return super().attach_producer(producer)

    async def terminate(self) -> Position:
        """Terminates the topic once all published entries are durable; returns its last position.

        Consumers are told once they have acknowledged all entries. Raises what `ManagedLog.terminate` raises.
        """
        last = await self.log.terminate()
        self.access.clear(TopicTerminatedError(f"{self.name} is terminated and takes no more messages"))
        for subscription in self.subscriptions.values():
            subscription.pump()
        return last

    def last_sequence(self, producer_name: str) -> int:
        return -1 if self.dedup is None else self.dedup.state.last_sequence(producer_name)

    # -- publish path ------------------------------------------------------------------------------

    @property
    def dedup(self) -> Deduplication | None:
        """Set while deduplication is on."""
        return self._dedup

    @dedup.setter
    def dedup(self, dedup: Deduplication | None) -> None:
        self._dedup = self.publishing.dedup = dedup

    @property
    def transactions(self) -> TopicTransactions | None:
        """Set from the first transaction on."""
        return self._transactions

    @transactions.setter
    def transactions(self, transactions: TopicTransactions | None) -> None:
        self._transactions = self.publishing.transactions = transactions

    def appended(self, run: EntryRun) -> None:
        """Entries became durable (LogListener): receipts and deliveries leave in this tick."""
        publishing = self.publishing
        publishing.tally.last_publish_ms = run.broker_time_ms
        publishing.release(Position(run.ledger_id, run.first_entry + len(run.entries) - 1))
        if self._transactions is not None:
            self._transactions.moved()
        for subscription in self.subscriptions.values():
            subscription.pump()

    def failed(self, error: MagnetarError) -> None:
        """The log cannot keep entries (LogListener): nothing that waits was acknowledged."""
        full = disk_full(error)
        who = "producers and consumers" if full is None else "producers"
        _log.error("%s: %s; its %s are disconnected", self.name, error, who)
        if self._transactions is not None:
            self._transactions.moved()
        # An error closes a client's whole connection, its consumers with it. On a full disk the producers
        # come back instead, are told why they must wait, and resend their pending messages.
        self.publishing.failed(error, told=full is None)
        if full is None:
            self.disconnect_clients()
        elif not self.closed:
            self._room.begin(str(self.name), full)
            self.access.clear(ServiceNotReadyError(str(self._room.refusal)))

    def _room_again(self) -> None:
        """All clients look the topic up again, which opens the log anew."""
        if not self.closed:
            _log.info("%s: there is free disk space again; the topic is opened again", self.name)
            self.disconnect_clients()
            self._spawn(self._end_log())

    async def _end_log(self) -> None:
        """Makes consumers' acknowledgements durable, even when no client comes back."""
        try:
            await self.log.close()
        except MagnetarError as error:
            # Messages whose acknowledgements were not written are delivered again, which is allowed.
            _log.warning("%s: closing after a full disk: %s", self.name, error)

    # -- subscriptions -----------------------------------------------------------------------------

    async def load(self) -> None:
        """Opens the durable subscriptions of the log. Called once, before clients attach."""
        for name, cursor in list(self.log.cursors.items()):
            if name not in (DEDUP_CURSOR, COMPACTION_CURSOR):
                self._add_subscription(name, cursor)
        await self.compaction.load()

    def _add_subscription(self, name: str, cursor: Cursor) -> Subscription:
        subscription = self._subscription(self.name, name, self.log, cursor, self._resources)
        if self.transactions is not None:
            self.transactions.begin(cursor)
        subscription.keep(self.limits.of_subscription(name))
        self._life.add(subscription)
        return subscription

    @property
    def bounded_subscriptions(self) -> Collection[Subscription]:
        """Subscriptions to which TTL and quotas apply."""
        return self.subscriptions.values()

    async def subscription(
        self, name: str, *, initial_earliest: bool, start: Position | None, properties: dict[str, str] | None
    ) -> Subscription:
        initial: Literal["earliest", "latest"] | Position = "earliest" if initial_earliest else "latest"
        if start is not None:
            initial = start
        cursor: Cursor | None = None
        while True:
            await self._drops.settled(name)
            is_opened = cursor is not None and self.log.cursors.get(name) is cursor
            step = self._life.next_for(name, is_opened=is_opened)
            if step is Next.ATTACH:
                return self.subscriptions[name]
            if step is Next.WAIT_FOR_SEEK:
                await called_back(self.subscriptions[name].seeks.when_down)
            elif step is Next.ADD:
                assert cursor is not None, "nothing was opened"
                return self._add_subscription(name, cursor)
            else:
                created = name not in self.log.cursors
                with self.limits.making_subscription(self.subscriptions, name):
                    cursor = await self.log.open_cursor(name, initial=initial, cursor_properties=properties)
                if created:
                    _log.info("%s: subscription created: %s", self.name, name)

    async def reader(self, name: str, start: ReaderStart) -> Subscription:
        start_after = await places.reader_start(self.log, start)
        while True:
            await self._drops.settled(name)
            step = self._life.next_for_reader(name)
            if step is not Next.WAIT_FOR_SEEK:
                break
            await called_back(self.subscriptions[name].seeks.when_down)
        if step is Next.ATTACH:
            return self.subscriptions[name]
        self.limits.admit_subscription(self.subscriptions, name)
        return self._add_subscription(name, self.log.new_reader_cursor(start_after))

    async def last_message(self) -> tuple[Position, int]:
        return await places.last_message(self.log)

    async def drop_subscription(self, subscription: AnySubscription) -> None:
        if subscription.durable:
            await self._drops.run(subscription.name, lambda: self._drop(subscription))
        else:
            self._life.take_off(subscription)
            subscription.detach_all()

    async def _drop(self, subscription: AnySubscription) -> None:
        assert isinstance(subscription, Subscription)
        name, life = subscription.name, self._life
        life.ending(subscription)
        try:
            if subscription.transactions is not None:
                await subscription.transactions.end("its subscription was deleted")
            life.deleting(subscription)
            subscription.detach_all()
            await self.log.delete_cursor(name)
        except BaseException:
            life.failed(subscription)
            raise
        life.deleted(name)
        _log.info("%s: subscription deleted: %s", self.name, name)

    def leave_reader(self, subscription: AnySubscription) -> None:
        if self._life.leave_reader(subscription):
            subscription.detach_all()

    # -- life cycle --------------------------------------------------------------------------------

    @property
    def retention_ms(self) -> int | None:
        kept_ms = self.log.retention.ms
        return None if kept_ms == UNLIMITED else kept_ms

    def disconnect_clients(self) -> None:
        self._room.end()
        super().disconnect_clients()

    async def close(self) -> None:
        """Detaches clients, makes deduplication and cursors durable, closes the log.

        Producers are detached last, once their messages are durable and acknowledged: a client that is
        detached before its receipts resends the messages, and the log would hold them twice.
        """
        self.closed = True
        for subscription in self.subscriptions.values():
            subscription.detach_all()
        try:
            if self.dedup is not None:
                await self.dedup.snapshot()
        finally:
            try:
                await self.log.close()
            finally:
                self.disconnect_clients()

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.publishing.dedup is self._dedup, "it drops duplicates by another state"
        assert self.publishing.transactions is self._transactions, "transactions append elsewhere"
        assert self.closed or self.log.listener is self, "another object hears of the log"
        assert self.subscriptions is self._life.subscriptions, "it serves others than are listed"
        self._life.check()
        for name, subscription in self.subscriptions.items():
            if subscription.durable and not self.closed:
                assert self.log.cursors.get(name) is subscription.cursor, "it acknowledges into nothing"
