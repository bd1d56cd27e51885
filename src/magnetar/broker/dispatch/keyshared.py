"""Key_Shared: entries of one key go to one consumer at a time, in order.

An entry whose consumer cannot take it now waits in a line of its hash, and so do all later ones of
that hash. A hash belongs to the consumer that holds unacknowledged entries of it (PIP-379: it drains
there first), else to whom the ranges say. With `allow_out_of_order` neither rule holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.api import AckView, Assignment, Delays, HashLine, Want, message_cost
from magnetar.broker.dispatch.consumer import Consumer, Pending
from magnetar.broker.dispatch.hashing import HashRing, StickyRanges
from magnetar.broker.dispatch.shared import ReplayQueue, SharedDispatcher
from magnetar.broker.errors import ConsumerBusyError

_WAITING_MAX: Final = 20_000
"""Entries that may wait before reading on stops: bounds memory behind one slow key."""
_ENTRIES_PER_READ: Final = 500
_FEW_WAITING: Final = 32
"""Up to here waiting entries are read one by one, beyond with all that lie between."""


class KeySharedDispatcher(SharedDispatcher):
    """See the module's text. Reuses Shared's bookkeeping of pending entries and redelivery counts."""

    def __init__(
        self,
        cursor: AckView,
        read_position: Position,
        *,
        sticky: bool,
        allow_out_of_order: bool,
        hash_of: Callable[[bytes], int],
        delays: Delays | None = None,
    ) -> None:
        """`hash_of` gives the sticky hash of an entry's bytes; `delays` as for Shared."""
        super().__init__(cursor, read_position, delays)
        self.sticky = sticky
        self.allow_out_of_order = allow_out_of_order
        self._owners: HashRing | StickyRanges = StickyRanges() if sticky else HashRing()
        self._hash_of = hash_of
        self._owner_of_hash: dict[int, Consumer | None] = {}
        """Owners that were asked for since consumers came or went."""
        self._in_flight: dict[int, tuple[Consumer, int]] = {}
        """Hash → who holds entries of it, and how many."""
        self._plain: dict[int, Pending] = {}
        """Hash → what is noted of an entry of one message: they share it."""
        self._waiting: dict[int, list[Position]] = {}
        """Hash → its entries that were read and could not be sent, a heap."""
        self._line_of: dict[Position, int] = {}
        """Waiting entry → its hash."""
        self._ready_hashes: deque[int] = deque()
        """Hashes with waiting entries, in the order in which they are tried."""
        self._stuck: tuple[bool, ...] | None = None
        """Which consumers were ready when every line was tried in vain; None after anything else changed
        that may free a line."""
        self._rows: dict[Consumer, list[int]] = {}
        """Rows of the run being offered that go to each consumer with nothing to say of them."""
        self._holes = self._given_back = False
        """Whether the cursor has anything to say of entries being offered."""
        self._due = ReplayQueue()
        """Entries whose delivery time has come. Their hashes are not known any more: it would take memory."""

    def add(self, consumer: Consumer) -> None:
        self._owners.add(consumer)
        self._owners_changed()
        super().add(consumer)

    def _owners_changed(self) -> None:
        self._owner_of_hash.clear()
        self._stuck = None

    def check_policy(self, *, sticky: bool, allow_out_of_order: bool) -> None:
        """All consumers must agree on the mode."""
        if self._consumers and (sticky != self.sticky or allow_out_of_order != self.allow_out_of_order):
            raise ConsumerBusyError("the other consumers of this Key_Shared subscription use another mode")

    def remove(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._owners.remove(consumer)
            self._owners_changed()
        super().remove(consumer)

    @property
    def has_returned(self) -> bool:
        return self.waiting_count > 0 or bool(self._due) or super().has_returned

    @property
    def again_count(self) -> int:
        return len(self._due)

    @property
    def waiting_count(self) -> int:
        """Entries that stand in line for their keys."""
        return len(self._line_of)

    @property
    def line_full(self) -> bool:
        """Whether nothing more is read until the lines are shorter."""
        return len(self._line_of) >= _WAITING_MAX

    @property
    def can_serve_line(self) -> bool:
        """Whether the first entry of some line can be sent now. Cost: the number of lines."""
        return any(line and self._taker(key_hash) is not None for key_hash, line in self._waiting.items())

    def lines(self, count_max: int) -> list[HashLine]:
        """Some of the lines, first those that wait for another consumer than the hash's owner."""
        found = []
        for key_hash, line in self._waiting.items():
            if not line:
                continue
            owner = self._owner(key_hash)
            holder, held = self._in_flight.get(key_hash, (None, 0))
            found.append(
                HashLine(
                    key_hash,
                    None if owner is None else owner.name,
                    None if holder is None else holder.name,
                    held,
                    len(line),
                )
            )
        found.sort(key=lambda line: line.holder is None or line.holder == line.owner)
        return found[:count_max]

    def _owner(self, key_hash: int) -> Consumer | None:
        """To whom the ranges give the hash."""
        try:
            return self._owner_of_hash[key_hash]
        except KeyError:
            owner = self._owner_of_hash[key_hash] = self._owners.owner(key_hash)
            return owner

    def _taker(self, key_hash: int) -> Consumer | None:
        """Who may get an entry of the hash now."""
        owner = self._owner_of_hash.get(key_hash) or self._owner(key_hash)
        if owner is None or self.unacked.blocked or not owner.ready:
            return None
        held = self._in_flight.get(key_hash)
        if held is not None and held[0] is not owner and not self.allow_out_of_order:
            return None
        return owner

    def want(self) -> Want | None:
        if self.unacked.blocked or not any(consumer.ready for consumer in self._consumers):
            return None
        if self._delays is not None and self._delays.loading:
            return None
        key_hash = self._ready_line()
        if key_hash is not None:
            few = len(self._line_of) <= _FEW_WAITING
            return Want(self._waiting[key_hash][0], 1 if few else _ENTRIES_PER_READ, replay=True)
        if self.line_full:
            return None
        self._fetch_due(self._due)
        due = self._due.first_range(_ENTRIES_PER_READ)
        if due is not None:
            return Want(due[0], due[1], replay=True)
        self._pass_held()
        return Want(self.read_position, _ENTRIES_PER_READ, replay=False)

    def _ready_line(self) -> int | None:
        """A hash whose first waiting entry can be sent."""
        if not self._ready_hashes:
            return None
        ready = tuple([consumer.ready for consumer in self._consumers])
        if ready == self._stuck:
            return None
        for _ in range(len(self._ready_hashes)):
            key_hash = self._ready_hashes[0]
            if not self._waiting.get(key_hash):
                self._ready_hashes.popleft()
                self._waiting.pop(key_hash, None)
            elif self._taker(key_hash) is not None:
                return key_hash
            else:
                self._ready_hashes.rotate(-1)
        self._stuck = ready
        return None

    def offer(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        assignments: list[Assignment] = []
        self._holes = self._cursor.has_holes
        self._given_back = self._cursor.has_redeliveries
        if want.replay and want.position in self._due:
            self._drop_unreadable(self._due, want, runs)
            for run in runs:
                self._offer_due(run, assignments)
        elif want.replay:
            return self._offer_waiting(want, runs)
        elif want.position == self.read_position:
            for run in runs:
                self._offer_new(run, assignments)
        return assignments

    def _offer_waiting(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        """Sends first ones of lines, wherever they lie in what was read."""
        assignments: list[Assignment] = []
        line_of = self._line_of
        first_hash = line_of.get(want.position)
        if first_hash is None:
            return assignments  # all was rewound while it was read from storage
        if not runs or (runs[0].ledger_id, runs[0].first_entry) != want.position:
            self._leave_line(want.position, first_hash)  # trimmed meanwhile
        for run in runs:
            for offset in range(len(run.entries)):
                position = Position(run.ledger_id, run.first_entry + offset)
                key_hash = line_of.get(position)
                if key_hash is None or self._waiting[key_hash][0] != position:
                    continue
                if self._holes and self._cursor.is_acked(position):
                    self._leave_line(position, key_hash)
                elif (taker := self._taker(key_hash)) is not None:
                    self._leave_line(position, key_hash)
                    self._assign(taker, run, offset, position, key_hash, assignments)
            self._end_run(run, assignments)
        return assignments

    def _leave_line(self, position: Position, key_hash: int) -> None:
        """Takes an entry out of its line, of which it is mostly the first."""
        line = self._waiting[key_hash]
        if line[0] == position:
            heapq.heappop(line)
        else:
            line.remove(position)
            heapq.heapify(line)
        del self._line_of[position]

    def _offer_due(self, run: EntryRun, assignments: list[Assignment]) -> None:
        for offset, entry in enumerate(run.entries):
            if self.line_full:
                break
            position = Position(run.ledger_id, run.first_entry + offset)
            if position in self._due:
                self._due.discard(position)
                if not self._cursor.is_acked(position):
                    self._place(run, offset, position, self._hash_of(entry), assignments)
        self._end_run(run, assignments)

    def _offer_new(self, run: EntryRun, assignments: list[Assignment]) -> None:
        holes = self._holes
        delays = self._delays
        if delays is not None and not delays.screen(run.entries):
            delays = None
        held_upto = 0
        for offset, entry in enumerate(run.entries):
            if self.line_full:
                break
            position = Position(run.ledger_id, run.first_entry + offset)
            self.read_position = Position(run.ledger_id, position.entry_id + 1)
            if delays is not None and offset >= held_upto:
                held_upto = delays.hold(
                    run, offset, len(run.entries), self._cursor.is_acked if holes else None
                )
            if offset < held_upto or (holes and self._cursor.is_acked(position)):
                continue
            self._place(run, offset, position, self._hash_of(entry), assignments)
        self._end_run(run, assignments)

    def _place(
        self, run: EntryRun, offset: int, position: Position, key_hash: int, assignments: list[Assignment]
    ) -> None:
        """Sends an entry, or puts it in line behind those of its hash."""
        behind = bool(self._waiting.get(key_hash)) and not self.allow_out_of_order
        taker = None if behind else self._taker(key_hash)
        if taker is None:
            self._wait(position, key_hash)
        else:
            self._assign(taker, run, offset, position, key_hash, assignments)

    def _assign(
        self,
        consumer: Consumer,
        run: EntryRun,
        offset: int,
        position: Position,
        key_hash: int,
        assignments: list[Assignment],
    ) -> None:
        words = self._cursor.ack_set(position) if self._holes else None
        cost = 1 if run.counts is None else message_cost(run, offset, words)
        consumer.sent(cost)
        self.unacked.sent(cost)
        if cost == 1:
            pending = self._plain.get(key_hash)
            if pending is None:
                pending = self._plain[key_hash] = Pending(1, key_hash)
        else:
            pending = Pending(cost, key_hash)
        consumer.pending[position] = pending
        held = self._in_flight.get(key_hash)
        self._in_flight[key_hash] = (consumer, 1 if held is None else held[1] + 1)
        redeliveries = self._cursor.redelivery_count(position) if self._given_back else 0
        rows = self._rows.get(consumer)
        if words is None and not redeliveries:
            if rows is None:
                self._rows[consumer] = [offset]
            else:
                rows.append(offset)
            return
        if rows is not None:  # they go first
            del self._rows[consumer]
            assignments.append(_assignment(consumer, run, rows))
        assignments.append(
            Assignment(
                consumer,
                run,
                offset,
                offset + 1,
                [redeliveries] if redeliveries else None,
                None if words is None else [words],
            )
        )

    def _end_run(self, run: EntryRun, assignments: list[Assignment]) -> None:
        """Turns the rows of each consumer into one assignment."""
        if self._rows:
            assignments += [_assignment(consumer, run, rows) for consumer, rows in self._rows.items()]
            self._rows.clear()

    def _wait(self, position: Position, key_hash: int) -> None:
        line = self._waiting.get(key_hash)
        if line is None:
            line = self._waiting[key_hash] = []
            self._ready_hashes.append(key_hash)
        heapq.heappush(line, position)
        self._line_of[position] = key_hash
        self._stuck = None

    def _released(self, consumer: Consumer, done: Sequence[Pending]) -> None:
        for pending in done:
            holder, count = self._in_flight[pending.key_hash]
            if count == 1:
                del self._in_flight[pending.key_hash]
                if self._waiting and self._owner(pending.key_hash) is not holder:
                    self._stuck = None
            else:
                self._in_flight[pending.key_hash] = (holder, count - 1)

    def _requeue(self, position: Position, pending: Pending) -> None:
        self._wait(position, pending.key_hash)

    def rewind(self, position: Position) -> None:
        super().rewind(position)
        self._in_flight.clear()
        self._waiting.clear()
        self._ready_hashes.clear()
        self._line_of.clear()
        self._stuck = None
        self._due.clear()

    def check(self) -> None:
        super().check()
        lines = {position: key_hash for key_hash, line in self._waiting.items() for position in line}
        assert self._line_of == lines
        held: dict[int, int] = {}
        for consumer in self._consumers:
            for pending in consumer.pending.values():
                held[pending.key_hash] = held.get(pending.key_hash, 0) + 1
                assert self.allow_out_of_order or self._in_flight[pending.key_hash][0] is consumer
        assert held == {key_hash: count for key_hash, (_, count) in self._in_flight.items()}


def _assignment(consumer: Consumer, run: EntryRun, rows: list[int]) -> Assignment:
    first, last = rows[0], rows[-1]
    together = last - first + 1 == len(rows)
    return Assignment(consumer, run, first, last + 1, None, None, None if together else rows)
