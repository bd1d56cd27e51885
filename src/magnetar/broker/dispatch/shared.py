"""Shared: every entry to one consumer, in turn, with individual acknowledgement."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position, positions_of
from magnetar.broker.dispatch.consumer import Consumer, Pending
from magnetar.broker.dispatch.dispatcher import AckView, Assignment, Delays, Want, message_cost
from magnetar.broker.dispatch.replay_queue import ReplayQueue
from magnetar.broker.dispatch.unacked import UnackedLimit

_ENTRIES_PER_READ = 500
"""Entries read at a time (Pulsar's dispatcherMaxReadBatchSize)."""
_TURN_ENTRIES_MAX = 20
"""Entries that one consumer gets before the next one's turn (Pulsar's dispatcherMaxRoundRobinBatchSize)."""
_JUMPS_MAX = 4_096
"""Gaps between held and acknowledged entries that are passed in one go: some milliseconds of work."""
_ONE_MESSAGE = Pending(1)
"""Most entries are one message: they share this."""


def _priority(consumer: Consumer) -> int:
    return consumer.priority


class SharedDispatcher:
    """Round robin over consumers that have permits, best priority first."""

    def __init__(self, cursor: AckView, read_position: Position, delays: Delays | None = None) -> None:
        """`delays` holds back entries with a delivery time; None: every entry is sent at once."""
        self.read_position = read_position
        self.unacked = UnackedLimit()
        self._cursor = cursor
        self._delays = delays
        self._consumers: list[Consumer] = []
        self._turn = 0
        self._replay = ReplayQueue()
        self._known = True
        """Whether the cursor may have acknowledgements or redeliveries among the offered entries."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._consumers

    @property
    def has_returned(self) -> bool:
        """Whether any entries but new ones may have to be sent."""
        return bool(self._replay) or (self._delays is not None and self._delays.count > 0)

    @property
    def again_count(self) -> int:
        """Returned or due entries that are to be sent."""
        return len(self._replay)

    def add(self, consumer: Consumer) -> None:
        # As sorting would, but not at the cost of all of them for each that joins.
        bisect.insort(self._consumers, consumer, key=_priority)

    def remove(self, consumer: Consumer) -> None:
        if consumer not in self._consumers:
            return
        self._consumers.remove(consumer)
        self._give_back(consumer, list(consumer.pending))

    def want(self) -> Want | None:
        if self.unacked.blocked or not any(consumer.ask_output() for consumer in self._consumers):
            return None
        if self._delays is not None and self._delays.loading:
            return None
        self._fetch_due(self._replay)
        again = self._replay.first_range(_ENTRIES_PER_READ)
        if again is not None:
            return Want(again[0], again[1], replay=True)
        self._pass_held()
        return Want(self.read_position, _ENTRIES_PER_READ, replay=False)

    def _pass_held(self) -> None:
        """Skips entries that are known to be held back: after a restart they may be millions."""
        delays = self._delays
        if delays is None or self.read_position > delays.last_held:
            return
        for _ in range(_JUMPS_MAX):
            free = delays.next_free(self.read_position)
            if self._cursor.has_holes:
                free = self._cursor.next_unacked(free)
            if free == self.read_position:
                return
            self.read_position = free

    def _fetch_due(self, queue: ReplayQueue) -> None:
        """Puts one read's worth of due entries before those that were never read."""
        delays = self._delays
        if delays is not None and delays.count and len(queue) < _ENTRIES_PER_READ:
            for position in delays.take_due(_ENTRIES_PER_READ - len(queue)):
                if not self._cursor.is_acked(position):
                    queue.add(position)

    def offer(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        assignments: list[Assignment] = []
        if want.replay:
            self._drop_unreadable(self._replay, want, runs)
        elif want.position != self.read_position:
            return assignments
        self._known = want.replay or self._cursor.may_know_from(want.position)
        for run in runs:
            offset = 0
            while offset < len(run.entries):
                consumer = self._next_consumer()
                if consumer is None:
                    return assignments
                offset = self._serve(consumer, run, offset, want, assignments)
        return assignments

    def _drop_unreadable(self, queue: ReplayQueue, want: Want, runs: list[EntryRun]) -> None:
        """Entries that were trimmed since cannot be sent again."""
        readable = {(run.ledger_id, run.first_entry + i) for run in runs for i in range(len(run.entries))}
        for i in range(want.entries_max):
            position = Position(want.position.ledger_id, want.position.entry_id + i)
            if not runs or (
                position not in readable and position < (runs[-1].ledger_id, runs[-1].last_entry)
            ):
                queue.discard(position)

    def _next_consumer(self) -> Consumer | None:
        """The next ready consumer of the best priority that has one, in turn."""
        if self.unacked.blocked:
            return None
        consumers = self._consumers
        count = len(consumers)
        if not count:
            return None
        highest = consumers[0].priority
        best: Consumer | None = None
        best_at = 0
        at = self._turn
        for _ in range(count):
            at = at if at < count else 0
            consumer = consumers[at]
            if consumer.ask_output() and (best is None or consumer.priority < best.priority):
                best, best_at = consumer, at
                if consumer.priority == highest:
                    break
            at += 1
        if best is not None:
            self._turn = best_at + 1
        return best

    def _serve(
        self, consumer: Consumer, run: EntryRun, offset: int, want: Want, assignments: list[Assignment]
    ) -> int:
        """Gives the consumer its turn from `offset` on; returns the offset of the first entry left."""
        stop_max = min(len(run.entries), offset + _TURN_ENTRIES_MAX)
        delays = None if want.replay else self._delays
        if delays is not None and not delays.screen(run.entries[offset:stop_max]):
            delays = None
        if run.counts is None and delays is None and not self._known:
            return self._serve_plain(consumer, run, offset, stop_max, assignments)
        start = offset
        counts: list[int] = []
        sets: list[tuple[int, ...] | None] = []
        # A returned entry may lie before mark-delete: acknowledged by another consumer, or skipped.
        holes = self._known

        def close() -> None:
            if offset > start:
                assignments.append(
                    Assignment(
                        consumer,
                        run,
                        start,
                        offset,
                        counts if any(counts) else None,
                        sets if any(words is not None for words in sets) else None,
                    )
                )

        before = consumer.unacked
        while offset < stop_max and consumer.permits > 0 and not consumer.blocked:
            position = Position(run.ledger_id, run.first_entry + offset)
            taken = want.replay and position not in self._replay
            if delays is not None:
                passed = delays.hold(run, offset, len(run.entries), self._cursor.is_acked if holes else None)
                if passed > offset:
                    close()
                    offset = passed
                    self.read_position = Position(run.ledger_id, run.first_entry + offset)
                    start, counts, sets = offset, [], []
                    continue
            if taken or (holes and self._cursor.is_acked(position)):
                close()
                self._passed(position, want)
                offset += 1
                start, counts, sets = offset, [], []
                continue
            words = self._cursor.ack_set(position) if holes else None
            cost = message_cost(run, offset, words)
            consumer.sent(cost)
            consumer.pending[position] = _ONE_MESSAGE if cost == 1 else Pending(cost)
            counts.append(self._cursor.redelivery_count(position) if holes else 0)
            sets.append(words)
            self._passed(position, want)
            offset += 1
        close()
        self.unacked.sent(consumer.unacked - before)
        return offset

    def _serve_plain(
        self, consumer: Consumer, run: EntryRun, offset: int, stop_max: int, assignments: list[Assignment]
    ) -> int:
        """The usual turn: new entries of one message each, none acknowledged, returned or delayed."""
        stop = min(stop_max, offset + consumer.permits)
        if consumer.unacked_max:
            stop = min(stop, offset + consumer.unacked_max - consumer.unacked)
        ledger_id, first = run.ledger_id, run.first_entry
        positions = positions_of(ledger_id, range(first + offset, first + stop))
        consumer.pending.update(dict.fromkeys(positions, _ONE_MESSAGE))
        consumer.sent(stop - offset)
        self.unacked.sent(stop - offset)
        assignments.append(Assignment(consumer, run, offset, stop, None, None))
        self.read_position = Position(ledger_id, first + stop)
        return stop

    def _passed(self, position: Position, want: Want) -> None:
        if want.replay:
            self._replay.discard(position)
        else:
            self.read_position = Position(position.ledger_id, position.entry_id + 1)

    def acked(self, consumer: Consumer, positions: Sequence[Position]) -> int:
        # Almost always the consumer that acknowledges an entry is the one that holds it.
        found = list(map(consumer.pending.pop, positions, repeat(None)))
        done = list(filter(None, found))
        messages = self._release(consumer, done)
        if len(done) < len(found):
            absent = [at for at, pending in zip(positions, found, strict=True) if pending is None]
            messages += self._acked_elsewhere(absent)
        if self._delays is not None and self._delays.count:
            self._delays.discard(positions)
        return messages

    def _acked_elsewhere(self, positions: Sequence[Position]) -> int:
        """Entries were acknowledged by a consumer that does not hold them; their messages, as far as known.

        A client may name thousands, and there may be thousands of consumers: each consumer is asked once.
        """
        messages = 0
        left = set(positions)
        for holder in self._consumers:
            # The shorter side is walked.
            if held := holder.pending.keys() & left:
                messages += self._release(holder, [holder.pending.pop(position) for position in sorted(held)])
                left -= held
        for position in left:
            messages += self._comes_again(position)
        for position in positions:
            self._replay.discard(position)
        return messages

    def _comes_again(self, position: Position) -> bool:
        """Whether the entry was returned and is to be sent."""
        return position in self._replay

    def acked_parts(self, consumer: Consumer, left: Mapping[Position, int]) -> int:
        messages = self._parts_of(consumer, left.keys(), left)
        if not left.keys() <= consumer.pending.keys():
            for holder in self._consumers:
                # The shorter side is walked.
                if holder is not consumer and (held := holder.pending.keys() & left.keys()):
                    messages += self._parts_of(holder, held, left)
        return messages

    def _parts_of(self, holder: Consumer, positions: Iterable[Position], left: Mapping[Position, int]) -> int:
        """The same for those of the batches that the consumer holds."""
        messages = 0
        for position in positions:
            pending = holder.pending.get(position)
            if pending is not None:
                acked = max(0, pending.messages - left[position])
                holder.pending[position] = Pending(pending.messages - acked, pending.key_hash)
                messages += acked
        holder.released(messages)
        self.unacked.released(messages)
        return messages

    def _release(self, consumer: Consumer, done: Sequence[Pending]) -> int:
        """These entries of the consumer were acknowledged or returned; returns their messages."""
        messages = sum([pending.messages for pending in done])
        consumer.released(messages)
        self.unacked.released(messages)
        self._released(consumer, done)
        return messages

    def withdraw(self, positions: Iterable[Position]) -> None:
        """These are not to be sent again now: they are sent when due."""
        for position in positions:
            self._replay.discard(position)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> int:
        wanted = list(consumer.pending) if positions is None else positions
        held = [position for position in dict.fromkeys(wanted) if position in consumer.pending]
        before = consumer.unacked
        self._give_back(consumer, held)
        self._cursor.redelivered(held)
        return before - consumer.unacked

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """All at once: a consumer that leaves may hold 50,000."""
        if not positions:
            return
        given = dict(zip(positions, map(consumer.pending.pop, positions), strict=True))
        self._release(consumer, list(given.values()))
        if self._cursor.may_know_from(min(positions)):
            is_acked = self._cursor.is_acked
            given = {position: pending for position, pending in given.items() if not is_acked(position)}
        self._requeue(given)

    def _released(self, consumer: Consumer, done: Sequence[Pending]) -> None:
        """These entries are no longer in flight at the consumer."""

    def _requeue(self, given: Mapping[Position, Pending]) -> None:
        """These entries, which were in flight, are to be sent again."""
        self._replay.add_all(given.keys())

    def see(self, acks: AckView) -> None:
        self._cursor = acks

    def again(self, positions: Sequence[Position], *, last: bool = True) -> None:
        left = set(positions)
        for holder in self._consumers:
            # Intersecting walks the shorter side, so that many consumers cost no look for each position.
            if held := holder.pending.keys() & left:
                self._give_back(holder, sorted(held))
                left -= held
        read, comes_again = self.read_position, self._comes_again
        self._send_again(
            [position for position in sorted(left) if position < read and not comes_again(position)]
        )

    def _send_again(self, positions: Collection[Position]) -> None:
        """These entries, which have no holder and are not waiting, are to be sent."""
        self._replay.add_all(positions)

    def rewind(self, position: Position) -> None:
        self.read_position = position
        self._replay.clear()
        self.unacked.clear()
        for consumer in self._consumers:
            consumer.pending.clear()
            consumer.released(consumer.unacked)

    def check(self) -> None:
        """Walks the invariants: a position is pending at one consumer at most and never queued then."""
        seen: set[Position] = set()
        for consumer in self._consumers:
            assert not seen & consumer.pending.keys()
            seen |= consumer.pending.keys()
            assert consumer.unacked == sum(pending.messages for pending in consumer.pending.values())
        assert self.unacked.total == sum(consumer.unacked for consumer in self._consumers)
        assert not any(position in self._replay for position in seen)
