"""Exclusive and Failover: one consumer at a time gets all entries, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.active import ActiveConsumers
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import AckView, Assignment, Want, message_cost

_ENTRIES_PER_READ = 2_000


class SingleActiveDispatcher(ActiveConsumers):
    """Sends all entries to the active consumer; a new one begins where acknowledgements end."""

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
        """As of ActiveConsumers; `successor` gives the position after another one."""
        super().__init__(failover=failover, partition=partition, active_changed=active_changed)
        self.read_position = read_position
        self._cursor = cursor
        self._successor = successor

    def _elected(self) -> None:
        self.rewind(self._successor(self._cursor.mark_delete))

    def want(self) -> Want | None:
        active = self.active
        if active is None or active.permits <= 0 or not active.outlet.ask_output():
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
            else:
                stop = self._assign_each(active, run, assignments)
            self.read_position = Position(run.ledger_id, run.first_entry + stop)
        return assignments

    def _assign_each(self, active: Consumer, run: EntryRun, assignments: list[Assignment]) -> int:
        """Assigns entry by entry; returns the offset of the first that was left."""
        # Entries that a filter rejected since the read was requested may lie before mark-delete.
        holes = self._cursor.has_holes or self._cursor.mark_delete >= (run.ledger_id, run.first_entry)
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
            offset += 1
        close()
        return offset

    def acked(self, consumer: Consumer, positions: Sequence[Position]) -> int:
        # Sent and unacknowledged entries lie between cursor and `read_position`: nothing else is recorded.
        return consumer.messages_in(len(positions))

    def acked_parts(self, consumer: Consumer, left: Mapping[Position, int]) -> int:
        """Counted with the rest of each batch."""
        return 0

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> int:
        """Order forbids to redeliver single entries: all unacknowledged ones are sent again."""
        if consumer is self.active:
            self.rewind(self._successor(self._cursor.mark_delete))
        return 0

    def see(self, acks: AckView) -> None:
        self._cursor = acks

    def again(self, positions: Sequence[Position], *, last: bool = True) -> None:
        """Order forbids to send single entries again: all unacknowledged ones are sent, after the last."""
        if last:
            self.rewind(self._successor(self._cursor.mark_delete))

    def rewind(self, position: Position) -> None:
        self.read_position = position
