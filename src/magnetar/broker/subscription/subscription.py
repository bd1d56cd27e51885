"""A subscription: a cursor, a dispatcher, and the pump between log, dispatcher and connections.

Driver of `ReadPlace` (where it reads and acknowledges), `Pump` (what is sent, and how much in one go) and
`PumpTurns` (when): it reads from storage, sets alarms, makes the cursor durable, and is what sessions call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.base.weak import weakly
from magnetar.broker.compaction.compacted_source import CompactedSource
from magnetar.broker.compaction.compacted_view import CompactedView
from magnetar.broker.delayed.delayed_delivery import DelayedDelivery
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.explain.live_views import dispatcher_view, with_held
from magnetar.broker.explain.subscription_view import View
from magnetar.broker.filters.filtered_source import FilteredSource, ScreenedPlace, screened
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.subscription import dispatchers
from magnetar.broker.subscription.acknowledging import acknowledge_each, acknowledge_upto, sent_and_unacked
from magnetar.broker.subscription.any_subscription import (
    READ_AGAIN_MS,
    AnySubscription,
    AttachedConsumer,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.subscription.attachments import SHARING, Attachments
from magnetar.broker.subscription.pump import Pump, PumpState, RateWait, StoredRead, Unreadable
from magnetar.broker.subscription.pump_turns import PumpTurns
from magnetar.broker.subscription.read_place import ReadPlace
from magnetar.broker.subscription.subscription_invariants import check_consumers, check_tally
from magnetar.broker.topic import places
from magnetar.broker.topic.topic_resources import TopicResources
from magnetar.broker.transactions.subscription_acks import SubscriptionAcks
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.runtime.tasks import soon
from magnetar.wire.events import AckEvent

_log = logging.getLogger("magnetar.broker.subscription")


class Subscription(AnySubscription):
    """Consumers of one topic that share a cursor."""

    def __init__(
        self, topic: TopicName, name: str, log: ManagedLog, cursor: Cursor, resources: TopicResources
    ) -> None:
        clock, alarms, spawn = resources.clock, resources.alarms, resources.spawn
        super().__init__(topic, name, clock.now_ms())
        self.cursor, self._log = cursor, log
        self._spawn = spawn
        pump, again = weakly(self.pump), weakly(self._deliver_again)
        self._delays = DelayedDelivery(clock, alarms, cursor, spawn, wake=pump, reread=again)
        self._reads = ReadPlace(log, cursor, self._delays)
        self._turns = PumpTurns(weakly(self._remove), pump, soon)
        self._attached = Attachments(
            self._reads, self._delays, topic.partition, tell_active=weakly(self._tell_active)
        )
        self._pump = Pump(self._reads, self._turns, self.tally, resources.outputs, clock)
        self._clock, self._alarms, self._outputs = clock, alarms, resources.outputs
        self.turns = resources.turns
        self._limits = SubscriptionLimits()
        self.transactions: SubscriptionAcks | None = None
        """None before the first acknowledgement in a transaction."""
        self._screen: FilteredSource | None = None
        """What is read instead of the source while entry filters are in force."""

    def view_compacted(self, view: CompactedView | None, start: Position) -> None:
        """The view for the next consumers; see `ReadPlace.view_compacted`."""
        if not self.consumers:
            self._reads.view_compacted(view, start)

    async def last_message(self) -> tuple[Position, int]:
        """The last message that its consumers can get; see `AnyTopic.last_message`."""
        source = self._reads.source
        found = await source.last_message() if isinstance(source, CompactedSource) else None
        return await places.last_message(self._log) if found is None else found

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties from the client that created the subscription, stored with its cursor."""
        return self.cursor.cursor_properties

    @property
    def type(self) -> SubscriptionType:
        return self._attached.type

    @property
    def durable(self) -> bool:
        return self.cursor.durable

    @property
    def acks(self) -> Cursor | CompactedSource:
        """Where it is kept what is acknowledged."""
        return self._reads.acks

    @property
    def consumers(self) -> list[AttachedConsumer]:
        """Attached consumers, in dispatch order."""
        return self._attached.consumers

    @property
    def backlog_entries(self) -> int:
        return self.cursor.backlog_entries

    @property
    def mark_delete(self) -> Position:
        return self.cursor.mark_delete

    @property
    def delayed_entries(self) -> int:
        """Entries that were read and wait for their delivery time."""
        return self._delays.count

    @property
    def active_consumer(self) -> str | None:
        """Name of the active consumer of an Exclusive or Failover subscription."""
        sole = self._attached.sole
        return None if sole is None else sole.name

    @property
    def read_position(self) -> Position:
        """The next entry that will be read for the consumers."""
        return self._reads.read_position

    def view(self) -> View:
        log, delays, throttle = self._log, self._delays, self._limits.throttle
        known = View(
            topic_state=log.state.value,
            terminated=log.terminated is not None,
            backlog=self.cursor.backlog_entries,
            unread=self._reads.unread,
            delayed=delays.count,
            delayed_until_ms=delays.next_due_ms,
            rate_wait_ms=0 if throttle is None else throttle.wait_ms(),
            reading=self._pump.state is PumpState.READING or delays.loading,
            obstacle=self._pump.obstacle,
            now_ms=self._clock.now_ms(),
        )
        return dispatcher_view(
            self._reads.dispatcher, with_held(known, log, self.read_position), self.unacked_of
        )

    def unacked_of(self, consumer: Consumer) -> int:
        if consumer is not self._attached.sole:
            return consumer.unacked
        return sent_and_unacked(consumer, self.cursor, self._reads.unread)

    # -- consumers ---------------------------------------------------------------------------------

    def attach(self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy) -> None:
        """Adds a consumer. Raises ConsumerBusyError, ConsumerAssignmentError."""
        assert not self.seeks.is_up, "its client would get messages before its seek is answered"
        consumer.unacked_max = self._limits.unacked_max_per_consumer
        dispatcher = self._attached.attach(consumer, type_, policy)
        dispatchers.count_unacked(dispatcher, self._limits, self._turns.again)
        self.cursor.used()
        if self.transactions is not None:
            self.transactions.attached(dispatcher)

    def keep(self, limits: SubscriptionLimits) -> None:
        self._limits, self._delays.active = limits, limits.delayed_delivery
        self._pump.throttle = limits.throttle
        again = self._turns.again
        self._screen = self._reads.screen = screened(
            self, limits.filters, self._screen, self._delays, self._alarms, self._clock, again
        )
        dispatchers.limit_unacked(self._reads.dispatcher, limits)
        self.pump()

    def place(self) -> ScreenedPlace:
        """The present source of entries and place of acknowledgements."""
        reads = self._reads
        return ScreenedPlace(reads.source, reads.acks, reads.dispatcher)

    def detach(self, consumer: AttachedConsumer) -> None:
        """Removes a consumer; others get what it had not acknowledged."""
        if self._reads.dispatcher is not None:
            self._turns.leave(consumer)
            self.cursor.used()

    def _remove(self, consumer: AttachedConsumer) -> None:
        self._attached.remove(consumer)

    def detach_all(self) -> None:
        """Detaches every consumer and tells its client to subscribe again."""
        self._attached.remove_all()
        self._alarms.discard(self)

    # -- commands ----------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        """The consumer can take `permits` more messages."""
        consumer.permits += permits
        self.tally.flow(consumer, self._clock.now_ms())
        self.pump()

    def ack(self, consumer: AttachedConsumer, event: AckEvent) -> None:
        """Applies acknowledgements; the client is told once they are durable, if it asked."""
        dispatcher, acks = self._reads.dispatcher, self._reads.acks
        assert dispatcher is not None, "a consumer is attached to a dispatcher"
        if event.cumulative and self.type in SHARING:
            raise NotAllowedError(
                f"cumulative acknowledgement is not allowed on {self.type.name} subscriptions"
            )
        before, now_ms = self.mark_delete, self._clock.now_ms()
        if event.cumulative:
            messages = acknowledge_upto(acks, consumer, event, self._log.entries_between)
        else:
            messages = acknowledge_each(acks, dispatcher, consumer, event)
        self.tally.acknowledged(consumer, messages, now_ms)
        if self.cursor.mark_delete != before:
            self.tally.advanced_ms = now_ms
        if event.request_id is not None:
            self.cursor.when_durable(partial(consumer.connection.ack_response, consumer, event.request_id))
        self.pump()

    def redeliver(
        self, consumer: AttachedConsumer, positions: list[Position] | None, epoch: int | None
    ) -> None:
        """Sends these entries (None: all unacknowledged ones) again."""
        dispatcher = self._reads.dispatcher
        if dispatcher is None:
            return
        if epoch is not None:
            consumer.epoch = epoch
        held = self.unacked_of(consumer) if consumer is self._attached.sole else 0
        self.tally.given_back(consumer, held + dispatcher.redeliver(consumer, positions))
        self.pump()

    async def seek(self, position: Position, wanted: Position | None = None) -> None:
        """The next entry to deliver is `position`; consumers reconnect, as Pulsar's clients expect. `wanted`:
        what the client named, which the log may not have any more."""
        if self.transactions is not None:
            await self.transactions.end("its subscription was moved")
        with self.seeks.raised():
            self.detach_all()
            self._reads.seek(position, position if wanted is None else wanted)
            await self.cursor.flush()

    async def seek_message(self, position: Position) -> None:
        await self.seek(places.seek_position(self._log, position), position)

    async def seek_time(self, publish_ms: int) -> None:
        await self.seek(await self._reads.source.position_of_time(publish_ms))

    async def skip_all(self) -> None:
        """Acknowledges the whole backlog."""
        await self.skip_to(self._log.last_position)

    async def skip_to(self, position: Position) -> None:
        """Acknowledges all entries up to and including `position`; consumers stay and get the later ones."""
        self._skip(position)
        await self.cursor.flush()

    async def expire_to(self, position: Position) -> None:
        """As `skip_to`, because of age, and counted as that."""
        before = self.backlog_entries
        if position > self.cursor.mark_delete:
            self._skip(position)
        self.tally.expiry(before - self.backlog_entries, self._clock.now_ms())
        await self.cursor.flush()

    def _skip(self, position: Position) -> None:
        if self._reads.skip(position):
            self.tally.advanced_ms = self._clock.now_ms()
        self.pump()

    def _deliver_again(self) -> None:
        """Part of the delayed entries is not known any more."""
        self._reads.read_again()
        self.pump()

    # -- the pump ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends what can be sent now; called whenever permits, entries or acknowledgements arrive."""
        step = self._pump.run()
        if step is None:
            return
        if isinstance(step, StoredRead):
            self._spawn(self._outputs.reading(self._read(step), step.bytes_max))
        elif isinstance(step, RateWait):
            self._alarms.after(self, step.wait_ms, self.pump)
        else:
            self._read_failed(step)

    async def _read(self, read: StoredRead) -> None:
        """Reads entries that are not in memory, then continues. One read at a time."""
        want, source = read.want, read.screen or self._reads.source
        try:
            runs = await source.read(want.position, read.bytes_max, want.entries_max)
        except Exception as error:  # noqa: BLE001  # whatever it is, dispatch must not stop for ever
            self._read_failed(self._pump.failed(want, error))
            return
        finally:
            self._pump.read_ended()
        self._pump.arrived(read, runs)
        self.pump()

    def _read_failed(self, step: Unreadable) -> None:
        bug = None if isinstance(step.error, MagnetarError) else step.error
        _log.error("%s, %s: %s; dispatch waits", self.topic, self.name, step.obstacle, exc_info=bug)
        self._alarms.after(self, READ_AGAIN_MS, self.pump)

    def check(self) -> None:
        """Asserts what must always hold."""
        reads, attached = self._reads, self._attached
        attached.check()
        self.seeks.check()
        check_consumers(self, attached.consumers, ended=self._log.terminated is not None)
        check_tally(self.tally)
        assert not (self.seeks.is_up and attached.consumers), "consumers came back before a seek was answered"
        assert reads.cursor is self.cursor, "it acknowledges into another cursor"
        assert reads.screen is self._screen, "other filters are in force than were asked for"
