"""A persistent topic: producers, the publish path, subscriptions.

Publish path: `publish` admits a vector of entries (checksums, deduplication), appends it to the managed log
and records the waiting producers; `appended` is called when it is durable, sends the receipts and pumps the
subscriptions in the same turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final
from weakref import ref

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import LogError, MagnetarError, disk_full
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.base.weak import weakly
from magnetar.broker.access.access_state import Admission
from magnetar.broker.access.producer_access import ProducerAccess
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.dedup.dedup_state import Span, sequence_marks
from magnetar.broker.dedup.deduplication import Deduplication
from magnetar.broker.dedup.overlap import new_part
from magnetar.broker.errors import (
    RefusedError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
    TopicTerminatedError,
    wire_code,
)
from magnetar.broker.session.outputs import OutputBudget
from magnetar.broker.subscription.any_subscription import AnySubscription
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic import places
from magnetar.broker.topic.any_topic import AnyTopic, ReaderStart
from magnetar.broker.topic.disk_mark import DiskMark, RoomWait
from magnetar.broker.topic.entry import entry_hash, pieces_to_come
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.unanswered import ReceiptLine, Unanswered
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.managedlog.config import UNLIMITED
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.errors import LogTerminatedError
from magnetar.managedlog.log import ManagedLog
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.tasks import SingleFlight
from magnetar.wire.events import SendRun, TxnBits

_log = logging.getLogger("magnetar.broker.topic")

DEDUP_CURSOR: Final = "pulsar.dedup"
"""Cursor that holds the deduplication snapshot (Pulsar's name)."""


class Topic(AnyTopic):
    """One persistent topic or partition."""

    def __init__(
        self,
        name: TopicName,
        log: ManagedLog,
        *,
        clock: Clock,
        alarms: Alarms,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        outputs: OutputBudget,
        disk: DiskMark,
    ) -> None:
        super().__init__(name, ProducerAccess(log, spawn), clock)
        self._disk = disk
        self.log, self._outputs = log, outputs
        self.subscriptions: dict[str, Subscription] = {}
        self.dedup: Deduplication | None = None
        """Set while deduplication is on."""
        self.transactions: TopicTransactions | None = None
        """Set from the first transaction on."""
        self._clock, self._alarms, self._spawn = clock, alarms, spawn
        self._line = ReceiptLine()
        self._drops: SingleFlight[None] = SingleFlight()
        """Subscriptions that are being deleted."""
        me = ref(self)

        def closed() -> bool:
            return (topic := me()) is None or topic.closed

        self.compaction = TopicCompaction(name, log, clock=clock, spawn=spawn, closed=closed)
        self._room = RoomWait(alarms, log.has_room, weakly(self._room_again))
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

    def _take(self, producer: Producer, run: SendRun) -> None:
        if self.dedup is None:
            marks = None
        else:
            partial = pieces_to_come(run.entries) if run.chunked else None
            marks = sequence_marks(run.sequence_ids, run.highest_sequence_ids, run.counts, partial)
            spans = self.dedup.state.admit(producer.name, run.sequence_ids, marks)
            if spans is not None:
                self._publish_spans(producer, run, spans, marks)
                return
        self._append(
            producer,
            run.sequence_ids,
            run.highest_sequence_ids,
            run.counts,
            run.entries,
            run.size_bytes,
            -1 if marks is None else max(marks),
            run.txn,
        )

    def refuse(self, producer: Producer, run: SendRun, error: RefusedError) -> None:
        self._line.add(
            Unanswered(producer, run.sequence_ids, None, None, 0, run.size_bytes, -1, refusal=error)
        )
        self._release(EARLIEST)

    def _publish_spans(self, producer: Producer, run: SendRun, spans: list[Span], marks: list[int]) -> None:
        for start, stop, duplicate, known in spans:
            sequence_ids, entries = run.sequence_ids[start:stop], run.entries[start:stop]
            highest_ids = None if run.highest_sequence_ids is None else run.highest_sequence_ids[start:stop]
            size = sum(map(len, entries))
            if not duplicate:
                counts = None if run.counts is None else run.counts[start:stop]
                if known >= 0:
                    entries, counts = new_part(entries, counts, known, self.name)
                mark = max(marks[start:stop])
                self._append(producer, sequence_ids, highest_ids, counts, entries, size, mark, run.txn)
                continue
            assert self.dedup is not None
            self.dedup.duplicates += stop - start
            self._line.add(Unanswered(producer, sequence_ids, highest_ids, None, 0, size, -1))
        self._release(EARLIEST)

    def _append(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        counts: list[int] | None,
        entries: list[bytes],
        size_bytes: int,
        mark: int,
        txn: TxnBits | None,
    ) -> None:
        try:
            if txn is None:
                position = self.log.append(entries, counts)
            else:
                assert self.transactions is not None, "it was admitted"
                position = self.transactions.append(txn, entries, counts)
        except LogError as error:
            if self.dedup is not None:
                # Appends in flight may still become durable: when they are sent again, they are duplicates.
                self.dedup.state.forget_pushed(producer.name, self._line.mark_of(producer.name))
            producer.connection.published(size_bytes)
            # A terminated topic detaches its producers, and they are told when they come back: clients that
            # are told here first forget the producer and its pending messages. So does one on a full disk.
            if not isinstance(error, LogTerminatedError) and self._room.refusal is None:
                producer.connection.send_errors(producer, sequence_ids, wire_code(error), str(error))
            return
        count = len(entries)
        self._counted(producer, count if counts is None else sum(counts), size_bytes)
        self._line.add(Unanswered(producer, sequence_ids, highest_ids, position, count, size_bytes, mark))

    def appended(self, run: EntryRun) -> None:
        """Entries became durable (LogListener): receipts and deliveries leave in this tick."""
        self.last_publish_ms = run.broker_time_ms
        self._release(Position(run.ledger_id, run.first_entry + len(run.entries) - 1))
        if self.transactions is not None:
            self.transactions.moved()
        for subscription in self.subscriptions.values():
            subscription.pump()

    def _release(self, durable: Position) -> None:
        """Answers what waits at the head of the line, as far as it is durable."""
        line = self._line
        while (head := line.pop(durable)) is not None:
            position = head.position
            if position is not None and self.dedup is not None:
                self.dedup.persisted(head.producer.name, head.mark, position, head.count)
            connection = head.producer.connection
            if head.refusal is not None:
                code, reason = wire_code(head.refusal), str(head.refusal)
                connection.send_errors(head.producer, head.sequence_ids, code, reason)
            else:
                connection.receipts(head.producer, head.sequence_ids, head.highest_ids, position)
            connection.published(head.size_bytes)

    def failed(self, error: MagnetarError) -> None:
        """The log cannot keep entries (LogListener): nothing that waits was acknowledged."""
        full = disk_full(error)
        who = "producers and consumers" if full is None else "producers"
        _log.error("%s: %s; its %s are disconnected", self.name, error, who)
        code = wire_code(error)
        if self.transactions is not None:
            self.transactions.moved()
        for item in self._line.clear():
            if self.dedup is not None:
                self.dedup.state.forget_pushed(item.producer.name)
            item.producer.connection.published(item.size_bytes)
            # An error closes a client's whole connection, its consumers with it. On a full disk the producers
            # come back instead, are told why they must wait, and resend their pending messages.
            if full is None:
                item.producer.connection.send_errors(item.producer, item.sequence_ids, code, str(error))
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
        subscription = Subscription(
            topic=self.name,
            name=name,
            log=self.log,
            cursor=cursor,
            spawn=self._spawn,
            hash_of=entry_hash,
            clock=self._clock,
            alarms=self._alarms,
            outputs=self._outputs,
        )
        if self.transactions is not None:
            self.transactions.begin(cursor)
        subscription.keep(self.limits.of_subscription(name))
        self.subscriptions[name] = subscription
        return subscription

    @property
    def bounded_subscriptions(self) -> Iterable[Subscription]:
        """Subscriptions to which TTL and quotas apply."""
        return self.subscriptions.values()

    async def subscription(
        self, name: str, *, initial_earliest: bool, start: Position | None, properties: dict[str, str] | None
    ) -> Subscription:
        initial: Any = start if start is not None else ("earliest" if initial_earliest else "latest")
        while True:
            # One that is being deleted still has its cursor: its consumer would wait for ever.
            await self._drops.settled(name)
            self._check_open()
            existing = self.subscriptions.get(name)
            if existing is not None:
                await existing.seeks.passed()
                self._check_open()
                if self.subscriptions.get(name) is existing:
                    return existing
                continue
            created = name not in self.log.cursors
            with self.limits.making_subscription(self.subscriptions, name):
                cursor = await self.log.open_cursor(name, initial=initial, cursor_properties=properties)
            if created:
                _log.info("%s: subscription created: %s", self.name, name)
            # Unloaded meanwhile: a consumer of this object would be forgotten.
            self._check_open()
            # Made and deleted by others meanwhile: then this cursor is a dead one.
            if self.log.cursors.get(name) is cursor and not self._drops.running(name):
                return self.subscriptions.get(name) or self._add_subscription(name, cursor)

    async def reader(self, name: str, start: ReaderStart) -> Subscription:
        start_after = await places.reader_start(self.log, start)
        self._check_open()
        existing = self.subscriptions.get(name)
        if existing is not None:
            return existing
        self.limits.admit_subscription(self.subscriptions, name)
        return self._add_subscription(name, self.log.new_reader_cursor(start_after))

    async def last_message(self) -> tuple[Position, int]:
        return await places.last_message(self.log)

    async def drop_subscription(self, subscription: AnySubscription) -> None:
        if subscription.durable:
            await self._drops.run(subscription.name, lambda: self._drop(subscription))
        else:
            self._take_off(subscription)

    def _take_off(self, subscription: AnySubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
        subscription.detach_all()

    async def _drop(self, subscription: AnySubscription) -> None:
        name = subscription.name
        if self.subscriptions.get(name) is not subscription:
            raise SubscriptionNotFoundError(f"{self.name} has no subscription {name}")
        assert isinstance(subscription, Subscription)
        if subscription.transactions is not None:
            await subscription.transactions.end("its subscription was deleted")
        self._take_off(subscription)
        try:
            await self.log.delete_cursor(name)
        except MagnetarError:
            # It is still there, holds its backlog, and can be deleted again.
            if not self.closed:
                self.subscriptions.setdefault(name, subscription)
            raise
        _log.info("%s: subscription deleted: %s", self.name, name)

    def leave_reader(self, subscription: AnySubscription) -> None:
        current = self.subscriptions.get(subscription.name) is subscription
        if current and not subscription.durable and not subscription.consumers:
            del self.subscriptions[subscription.name]
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
        self._line.check()
        assert self.closed or self.log.listener is self, "another object hears of the log"
        for name, subscription in self.subscriptions.items():
            assert subscription.name == name, "a subscription under another name"
            if subscription.durable and not self.closed:
                assert self.log.cursors.get(name) is subscription.cursor, "it acknowledges into nothing"
