"""A subscription: a cursor, a dispatcher, and the pump between log, dispatcher and connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.base.weak import weakly
from magnetar.broker.compaction.compacted_source import CompactedSource, forget_progress
from magnetar.broker.compaction.compacted_view import CompactedView
from magnetar.broker.delayed.delayed_delivery import DelayedDelivery
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Dispatcher, Want
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import SingleActiveDispatcher
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.explain.live_views import dispatcher_view, with_held
from magnetar.broker.explain.subscription_view import View
from magnetar.broker.filters.filtered_source import FilteredSource, ScreenedPlace, screened
from magnetar.broker.limits.topic_limits import SubscriptionLimits
from magnetar.broker.session.outputs import OutputBudget
from magnetar.broker.subscription import dispatchers, pump_turns
from magnetar.broker.subscription.acknowledging import acknowledge_each, acknowledge_upto, sent_and_unacked
from magnetar.broker.subscription.any_subscription import (
    READ_AGAIN_MS,
    AnySubscription,
    AttachedConsumer,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.broker.subscription.pump_turns import PumpTurns
from magnetar.broker.subscription.subscription_invariants import check_consumers, check_sources
from magnetar.broker.topic import places
from magnetar.broker.transactions.hidden import pass_all_hidden
from magnetar.broker.transactions.subscription_acks import SubscriptionAcks
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.visible_reading import last_visible
from magnetar.runtime.alarms import Alarms
from magnetar.wire.events import AckEvent

_log = logging.getLogger("magnetar.broker.subscription")


class Subscription(AnySubscription):
    """Consumers of one topic that share a cursor."""

    def __init__(
        self,
        *,
        topic: TopicName,
        name: str,
        log: ManagedLog,
        cursor: Cursor,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        hash_of: Callable[[bytes], int],
        clock: Clock,
        alarms: Alarms,
        outputs: OutputBudget,
    ) -> None:
        """`hash_of`: sticky hash of an entry; `spawn` runs reads; `alarms` tell when entries are due."""
        super().__init__(topic, name, clock.now_ms())
        self.cursor, self._log = cursor, log
        self._source: ManagedLog | CompactedSource = log
        """Where entries are read."""
        self.acks: Cursor | CompactedSource = cursor
        """Where it is kept what is acknowledged of them."""
        self._spawn, self._hash_of = spawn, hash_of
        pump, again = weakly(self.pump), weakly(self._deliver_again)
        self._delays = DelayedDelivery(clock, alarms, cursor, spawn, wake=pump, reread=again)
        self._dispatcher: Dispatcher | None = None
        self._reading = self._pumping = False
        self._turns = PumpTurns(weakly(self._remove), pump)
        self._obstacle = ""
        """Why the last read failed; empty when it did not."""
        self._clock, self._alarms, self._outputs = clock, alarms, outputs
        self._limits = SubscriptionLimits()
        self.transactions: SubscriptionAcks | None = None
        """None before the first acknowledgement in a transaction."""
        self._screen: FilteredSource | None = None
        """What is read instead of the source while entry filters are in force."""

    def view_compacted(self, view: CompactedView | None, start: Position) -> None:
        """The view for the next consumers, None: the log; a view is kept, as it knows of seeks since.
        `start`: the first wanted entry of a new subscription."""
        if self.consumers:
            return
        if view is None:
            self._source, self.acks = self._log, self.cursor
        elif self._source is self._log:
            self._source = self.acks = CompactedSource(view, self.cursor, start)

    async def last_message(self) -> tuple[Position, int]:
        """The last message that its consumers can get; see `AnyTopic.last_message`."""
        found = await self._source.last_message() if isinstance(self._source, CompactedSource) else None
        return await places.last_message(self._log) if found is None else found

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties from the client that created the subscription, stored with its cursor."""
        return self.cursor.cursor_properties

    @property
    def durable(self) -> bool:
        return self.cursor.durable

    @property
    def consumers(self) -> list[AttachedConsumer]:
        """Attached consumers, in dispatch order."""
        if self._dispatcher is None:
            return []
        return [consumer for consumer in self._dispatcher.consumers if isinstance(consumer, AttachedConsumer)]

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
        return None if self._sole is None else self._sole.name

    @property
    def _sole(self) -> Consumer | None:
        """The only consumer that is served; None where all are."""
        dispatcher = self._dispatcher
        return dispatcher.active if isinstance(dispatcher, SingleActiveDispatcher) else None

    @property
    def read_position(self) -> Position:
        """The next entry that will be read for the consumers."""
        if self._dispatcher is None:
            return self._log.next_position(self.cursor.mark_delete)
        return self._dispatcher.read_position

    def view(self) -> View:
        log, delays, throttle = self._log, self._delays, self._limits.throttle
        known = View(
            topic_state=log.state.value,
            terminated=log.terminated is not None,
            backlog=self.cursor.backlog_entries,
            unread=self._unread,
            delayed=delays.count,
            delayed_until_ms=delays.next_due_ms,
            rate_wait_ms=0 if throttle is None else throttle.wait_ms(),
            reading=self._reading or delays.loading,
            obstacle=self._obstacle,
            now_ms=self._clock.now_ms(),
        )
        return dispatcher_view(self._dispatcher, with_held(known, log, self.read_position), self.unacked_of)

    def unacked_of(self, consumer: Consumer) -> int:
        if consumer is not self._sole:
            return consumer.unacked
        return sent_and_unacked(consumer, self.cursor, self._unread)

    @property
    def _unread(self) -> int:
        log = self._log
        return log.entries_between(log.previous_position(self.read_position), log.last_position)

    # -- consumers ---------------------------------------------------------------------------------

    def attach(self, consumer: AttachedConsumer, type_: SubscriptionType, policy: KeySharedPolicy) -> None:
        """Adds a consumer. Raises ConsumerBusyError, ConsumerAssignmentError."""
        dispatcher = self._dispatcher
        if dispatcher is None or not (dispatcher.consumers or dispatchers.goes_on(dispatcher, type_, policy)):
            dispatcher = self._new_dispatcher(type_, policy)
        else:
            dispatchers.check_type(self.type, type_)
        dispatchers.check_policy(dispatcher, policy)
        consumer.unacked_max = self._limits.unacked_max_per_consumer
        # Before `add`, which tells a Failover consumer whether it is the active one.
        self.type = type_
        dispatcher.add(consumer)
        self.cursor.used()
        self._dispatcher = dispatcher
        if self.transactions is not None:
            self.transactions.attached(dispatcher)
        if isinstance(dispatcher, SharedDispatcher):
            dispatcher.unacked.join(self._limits.unacked_of_broker, self._turns.again)
            dispatcher.unacked.limit(self._limits.unacked_max)

    def keep(self, limits: SubscriptionLimits) -> None:
        self._limits, self._delays.active = limits, limits.delayed_delivery
        again = self._turns.again
        self._screen = screened(
            self, limits.filters, self._screen, self.place, self._delays, self._alarms, self._clock, again
        )
        dispatchers.limit_unacked(self._dispatcher, limits)
        self.pump()

    def place(self) -> ScreenedPlace:
        """The present source of entries and place of acknowledgements."""
        return ScreenedPlace(self._source, self.acks, self._dispatcher)

    def _new_dispatcher(self, type_: SubscriptionType, policy: KeySharedPolicy) -> Dispatcher:
        start = self._source.next_position(self.acks.mark_delete)
        if type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            hash_of = None if type_ is SubscriptionType.SHARED else self._hash_of
            return dispatchers.sharing(self.cursor, start, self._delays, policy, hash_of)
        self._delays.clear()
        return SingleActiveDispatcher(
            self.acks,
            start,
            failover=type_ is SubscriptionType.FAILOVER,
            partition=self.topic.partition,
            successor=self._source.next_position,
            active_changed=self._tell_active,
        )

    def detach(self, consumer: AttachedConsumer) -> None:
        """Removes a consumer; others get what it had not acknowledged."""
        if self._dispatcher is not None:
            self._turns.leave(consumer)
            self.cursor.used()

    def _remove(self, consumer: AttachedConsumer) -> None:
        if self._dispatcher is not None:
            self._dispatcher.remove(consumer)

    def detach_all(self) -> None:
        """Detaches every consumer and tells its client to subscribe again."""
        for consumer in self.consumers:
            self._remove(consumer)
            consumer.connection.consumer_detached(consumer)
        self._alarms.discard(self)
        self._dispatcher = None
        self._delays.pause()

    # -- commands ----------------------------------------------------------------------------------

    def flow(self, consumer: AttachedConsumer, permits: int) -> None:
        """The consumer can take `permits` more messages."""
        consumer.permits += permits
        self.tally.flow(consumer, self._clock.now_ms())
        self.pump()

    def ack(self, consumer: AttachedConsumer, event: AckEvent) -> None:
        """Applies acknowledgements; the client is told once they are durable, if it asked."""
        dispatcher = self._dispatcher
        assert dispatcher is not None, "a consumer is attached to a dispatcher"
        if event.cumulative and self.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise NotAllowedError(
                f"cumulative acknowledgement is not allowed on {self.type.name} subscriptions"
            )
        before, now_ms = self.mark_delete, self._clock.now_ms()
        if event.cumulative:
            messages = acknowledge_upto(self.acks, consumer, event, self._log.entries_between)
        else:
            messages = acknowledge_each(self.acks, dispatcher, consumer, event)
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
        if self._dispatcher is None:
            return
        if epoch is not None:
            consumer.epoch = epoch
        held = self.unacked_of(consumer) if consumer is self._sole else 0
        self.tally.given_back(consumer, held + self._dispatcher.redeliver(consumer, positions))
        self.pump()

    async def seek(self, position: Position, wanted: Position | None = None) -> None:
        """The next entry to deliver is `position`; consumers reconnect, as Pulsar's clients expect. `wanted`:
        what the client named, which the log may not have any more."""
        if self.transactions is not None:
            await self.transactions.end("its subscription was moved")
        self.detach_all()
        self.cursor.reset(position)
        pass_all_hidden(self.cursor, self._log.reading.visible)
        if self._screen is not None:
            self._screen.forget()
        if isinstance(self._source, CompactedSource):
            self._source.sought(position if wanted is None else wanted)
        else:
            forget_progress(self.cursor)
        self._delays.forget_upto(self.cursor.mark_delete)
        with self.seeks.closed():
            await self.cursor.flush()

    async def seek_message(self, position: Position) -> None:
        await self.seek(places.seek_position(self._log, position), position)

    async def seek_time(self, publish_ms: int) -> None:
        await self.seek(await self._source.position_of_time(publish_ms))

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
        before = self.cursor.mark_delete
        # Entries that no consumer can get yet stay: they may be committed.
        self.acks.ack_cumulative(min(position, last_visible(self._log)))
        if self.cursor.mark_delete != before:
            self.tally.advanced_ms = self._clock.now_ms()
        self._delays.forget_upto(self.cursor.mark_delete)
        if self._dispatcher is not None:
            following = self._log.next_position(self.cursor.mark_delete)
            # Nothing after the skipped part is forgotten: entries sent from there would be sent twice.
            if following >= self._dispatcher.read_position:
                self._dispatcher.rewind(following)
            self.pump()

    def _deliver_again(self) -> None:
        """Part of the delayed entries is not known any more: all that is unacknowledged is read again."""
        if self._dispatcher is not None:
            self._dispatcher.rewind(self._log.next_position(self.cursor.mark_delete))
            self.pump()

    # -- the pump ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends what can be sent now; called whenever permits, entries or acknowledgements arrive."""
        if self._pumping or self._reading or self._turns.due or self._dispatcher is None:
            return
        if self._log.terminated is not None and not self.acks.backlog_entries:
            dispatchers.tell_end(self.consumers)
        if dispatchers.nothing_to_send(self._dispatcher, self._log):
            return
        self._pumping = True
        try:
            self._pump(self._dispatcher)
        finally:
            self._pumping = False

    def _pump(self, dispatcher: Dispatcher) -> None:
        sent = entries = 0
        crowded = self._outputs.crowded
        reads = self._screen or self._source
        timed = crowded or self._screen is not None
        until_ms = self._clock.monotonic_ms() + pump_turns.CROWDED_MS_MAX if timed else 0.0
        held = self._delays.count
        self._obstacle = ""
        throttle = self._limits.throttle
        while (want := dispatcher.want()) is not None:
            bytes_max = self._outputs.read_bytes
            if crowded:
                want = want._replace(entries_max=min(want.entries_max, pump_turns.CROWDED_ENTRIES_MAX))
            if throttle is not None:
                entries_max, bytes_max = throttle.room(want.entries_max, bytes_max)
                if not entries_max:
                    self._alarms.after(self, throttle.wait_ms(), self.pump)
                    return
                want = want._replace(entries_max=entries_max)
            try:
                runs = reads.read_now(want.position, bytes_max, want.entries_max)
            except MagnetarError as error:
                self._read_failed(want, error)
                return
            if runs is None:
                self._reading = True
                self._spawn(self._outputs.reading(self._read(want, dispatcher, bytes_max), bytes_max))
                return
            if (skipped := self._log.reading.skipped) is not None:
                runs = skipped.lead(self.cursor, want.position, runs, replay=want.replay)
            if not runs and not want.replay:
                return
            sent += self._deliver(dispatcher, want, runs)
            entries += sum([len(run.entries) for run in runs])
            much = sent > pump_turns.PUMP_BYTES_MAX or entries > pump_turns.PUMP_ENTRIES_MAX
            much = much or (timed and self._clock.monotonic_ms() > until_ms)
            if much or self._delays.count - held > pump_turns.PUMP_HELD_MAX:
                self._turns.again()
                return

    def _deliver(self, dispatcher: Dispatcher, want: Want, runs: list[EntryRun]) -> int:
        sent, now_ms = 0, self._clock.now_ms()
        for consumer, run, start, stop, redeliveries, ack_sets, rows in dispatcher.offer(want, runs):
            assert isinstance(consumer, AttachedConsumer)
            size = consumer.encoder.encode(
                run,
                start,
                stop,
                consumer.connection.out,
                redelivery_counts=redeliveries,
                ack_sets=ack_sets,
                consumer_epoch=consumer.epoch,
                with_broker_metadata=consumer.broker_metadata,
                rows=rows,
            )
            consumer.connection.queued(size)
            entries, messages = dispatchers.amount(run.counts, start, stop, rows)
            self.tally.sent(consumer, entries, messages, size, now_ms)
            self.messages_out += messages
            self.bytes_out += size
            sent += size
            if self._limits.throttle is not None:
                self._limits.throttle.sent(messages, size)
        return sent

    async def _read(self, want: Want, dispatcher: Dispatcher, bytes_max: int) -> None:
        """Reads entries that are not in memory, then continues. One read at a time."""
        screen = self._screen
        try:
            runs = await (screen or self._source).read(want.position, bytes_max, want.entries_max)
        except Exception as error:  # noqa: BLE001  # whatever it is, dispatch must not stop for ever
            self._read_failed(want, error)
            return
        finally:
            self._reading = False
        if (skipped := self._log.reading.skipped) is not None:
            runs = skipped.lead(self.cursor, want.position, runs, replay=want.replay)
        # Entries read for other filters are read again.
        if dispatcher is self._dispatcher and screen is self._screen and (runs or want.replay):
            self._deliver(dispatcher, want, runs)
        self.pump()

    def _read_failed(self, want: Want, error: Exception) -> None:
        """Entries that cannot be read are not passed over: they may be readable after a repair."""
        self._obstacle = f"reading at {want.position} failed: {error}"
        bug = None if isinstance(error, MagnetarError) else error
        _log.error("%s, %s: %s; dispatch waits", self.topic, self.name, self._obstacle, exc_info=bug)
        self._alarms.after(self, READ_AGAIN_MS, self.pump)

    def check(self) -> None:
        """Asserts what must always hold."""
        check_sources(self._source, self.acks, self._log, self.cursor, pumping=self._pumping)
        check_consumers(self, self.consumers, self._dispatcher, ended=self._log.terminated is not None)
