"""Exclusive and Failover: one consumer at a time gets everything, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.api import AckView, Assignment, Want, message_cost
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import ConsumerBusyError

_ENTRIES_PER_READ = 2_000


def choose_active(consumers: Sequence[Consumer], partition: int) -> Consumer | None:
    """Who is active among consumers in the order in which they came; None when there are none.

    On a partition (>= 0) it is number `partition % n` among the consumers of the best priority, so that
    the partitions of a topic spread over them; elsewhere it is the one that came first.
    """
    if not consumers:
        return None
    best = min(consumer.priority for consumer in consumers)
    candidates = [consumer for consumer in consumers if consumer.priority == best]
    if partition < 0:
        return candidates[0]
    candidates.sort(key=lambda consumer: consumer.name)
    return candidates[partition % len(candidates)]


class SingleActiveDispatcher:
    """One active consumer, as `choose_active` says; the others (Failover) wait."""

    def __init__(
        self,
        cursor: AckView,
        read_position: Position,
        *,
        failover: bool,
        partition: int,
        successor: Callable[[Position], Position],
        active_changed: Callable[[Consumer, bool], None],
    ) -> None:
        """`active_changed(consumer, is_active)` tells each affected consumer; see `add`."""
        self.read_position = read_position
        self._cursor = cursor
        self._failover = failover
        self._partition = partition
        self._successor = successor
        self._active_changed = active_changed
        self._consumers: list[Consumer] = []
        self.active: Consumer | None = None

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._consumers

    def add(self, consumer: Consumer) -> None:
        if self._consumers and not self._failover:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self._consumers.append(consumer)
        self._elect(joined=consumer)

    def remove(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            self._elect(joined=None)

    def _elect(self, joined: Consumer | None) -> None:
        before = self.active
        self.active = choose_active(self._consumers, self._partition)
        if self.active is not before:
            if self.active is not None:
                self.rewind(self._successor(self._cursor.mark_delete))
            for consumer in self._consumers:
                if consumer in (before, self.active, joined):
                    self._active_changed(consumer, consumer is self.active)
        elif joined is not None:
            self._active_changed(joined, joined is self.active)

    def want(self) -> Want | None:
        active = self.active
        if active is None or active.permits <= 0 or not active.outlet.writable:
            return None
        return Want(self.read_position, min(active.permits, _ENTRIES_PER_READ), replay=False)

    def offer(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        active = self.active
        if active is None or want.position != self.read_position:
            return []
        assignments: list[Assignment] = []
        known = self._cursor.may_know_from(want.position)
        for run in runs:
            if active.permits <= 0:
                break
            if run.counts is None and not known:
                stop = min(len(run.entries), active.permits)
                assignments.append(Assignment(active, run, 0, stop, None, None))
                active.permits -= stop
                active.unacked += stop
            else:
                stop = self._assign_each(active, run, assignments)
            self.read_position = Position(run.ledger_id, run.first_entry + stop)
        return assignments

    def _assign_each(self, active: Consumer, run: EntryRun, assignments: list[Assignment]) -> int:
        """Assigns entry by entry; returns the offset of the first that was left."""
        holes = self._cursor.has_holes
        start = offset = 0
        ack_sets: list[tuple[int, ...] | None] = []

        def close() -> None:
            if offset > start:
                sets = ack_sets if any(words is not None for words in ack_sets) else None
                assignments.append(Assignment(active, run, start, offset, None, sets))

        while offset < len(run.entries) and active.permits > 0:
            words = None
            if holes:
                position = Position(run.ledger_id, run.first_entry + offset)
                if self._cursor.is_acked(position):
                    close()
                    offset += 1
                    start, ack_sets = offset, []
                    continue
                words = self._cursor.ack_set(position)
            ack_sets.append(words)
            cost = message_cost(run, offset, words)
            active.permits -= cost
            active.unacked += cost
            offset += 1
        close()
        return offset

    def acked(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        consumer.unacked = max(0, consumer.unacked - len(positions))

    def acked_cumulative(self, consumer: Consumer, position: Position) -> None:
        if position >= self.read_position or self._successor(position) >= self.read_position:
            consumer.unacked = 0

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Order forbids to redeliver single entries: everything unacknowledged comes again."""
        if consumer is self.active:
            self.rewind(self._successor(self._cursor.mark_delete))

    def rewind(self, position: Position) -> None:
        self.read_position = position
        for consumer in self._consumers:
            consumer.unacked = 0
