"""Key_Shared: entries of one key go to one consumer at a time, in order.

An entry whose consumer cannot take it now waits in a line of its hash, and so do all later ones of that hash.
A hash belongs to the consumer with unacknowledged entries of it (PIP-379: it drains there first), else to the
consumer of its range. With `allow_out_of_order` neither rule holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position, positions_of
from magnetar.broker.dispatch.consumer import Consumer, Pending
from magnetar.broker.dispatch.dispatcher import AckView, Assignment, Delays, HashLine, Want, message_cost
from magnetar.broker.dispatch.hashing import HashRing, StickyRanges
from magnetar.broker.dispatch.keystate import KeyState, Lines
from magnetar.broker.dispatch.replay_queue import ReplayQueue
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.errors import of_another_mode

_WAITING_MAX: Final = 20_000
"""Waiting entries at which reading stops: bounds the memory behind one slow key."""
_ENTRIES_PER_READ: Final = 500
_FEW_WAITING: Final = 32
"""Up to this many waiting entries are read one by one; more are read with all entries between them."""


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
        self._keys: dict[int, KeyState] = {}
        """By hash; all that are in flight or wait are here."""
        self._lines = Lines()
        self._rows: dict[Consumer, list[int]] = {}
        """Rows of the offered run for each consumer, without redelivery counts and ack sets."""
        self._holes = self._given_back = False
        """Whether the cursor has acknowledgements or redeliveries among the offered entries."""
        self._due = ReplayQueue()
        """Due delayed entries. Their hashes are not kept, to save memory."""

    def add(self, consumer: Consumer) -> None:
        self._owners.add(consumer)
        self._owners_changed()
        super().add(consumer)

    def _owners_changed(self) -> None:
        self._keys = {key.key_hash: key for key in self._keys.values() if key.held or key.in_lines}
        for key in self._keys.values():
            key.owner = None
        self._lines.stuck = None

    def check_policy(self, *, sticky: bool, allow_out_of_order: bool) -> None:
        """All consumers must agree on the mode."""
        if self._consumers and (sticky != self.sticky or allow_out_of_order != self.allow_out_of_order):
            raise of_another_mode(self.sticky, sticky)

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
        """Entries that wait in lines."""
        return len(self._lines)

    @property
    def line_full(self) -> bool:
        """Whether nothing more is read until the lines are shorter."""
        return len(self._lines) >= _WAITING_MAX

    @property
    def can_serve_line(self) -> bool:
        """Whether the first entry of some line can be sent now. Cost: the number of lines."""
        return not self.unacked.blocked and any(
            key.waiting and self._takes(key, self._owners.owner(key.key_hash)) for key in self._lines.order
        )

    def _takes(self, key: KeyState, owner: Consumer | None) -> bool:
        """Whether the owner of a hash could be sent its next entry now."""
        if owner is None or not owner.takes_output:
            return False
        return not key.held or key.holder is owner or self.allow_out_of_order

    def lines(self, count_max: int) -> list[HashLine]:
        """Some of the lines, first those that wait for another consumer than the hash's owner."""
        found = []
        for key in self._lines.order:
            if not key.waiting:
                continue
            owner = self._owners.owner(key.key_hash)
            found.append(
                HashLine(
                    key.key_hash,
                    None if owner is None else owner.name,
                    None if key.holder is None else key.holder.name,
                    key.held,
                    len(key.waiting),
                )
            )
        found.sort(key=lambda line: line.holder is None or line.holder == line.owner)
        return found[:count_max]

    def _key(self, key_hash: int) -> KeyState:
        key = self._keys.get(key_hash)
        if key is None:
            key = self._keys[key_hash] = KeyState(key_hash)
        return key

    def _owner(self, key: KeyState) -> Consumer | None:
        """The consumer of the range that contains the hash."""
        if key.owner is None:
            key.owner = self._owners.owner(key.key_hash)
        return key.owner

    def _taker(self, key: KeyState) -> Consumer | None:
        """The consumer that may get an entry of the hash now."""
        owner = key.owner or self._owner(key)
        if owner is None or self.unacked.blocked or not owner.ask_output():
            return None
        if key.held and key.holder is not owner and not self.allow_out_of_order:
            return None
        return owner

    def want(self) -> Want | None:
        if self.unacked.blocked or not any(consumer.ask_output() for consumer in self._consumers):
            return None
        if self._delays is not None and self._delays.loading:
            return None
        key = self._lines.first(self._consumers, self._taker) if self._lines else None
        if key is not None:
            few = len(self._lines) <= _FEW_WAITING
            return Want(key.waiting[0], 1 if few else _ENTRIES_PER_READ, replay=True)
        if self.line_full:
            return None
        self._fetch_due(self._due)
        due = self._due.first_range(_ENTRIES_PER_READ)
        if due is not None:
            return Want(due[0], due[1], replay=True)
        self._pass_held()
        return Want(self.read_position, _ENTRIES_PER_READ, replay=False)

    def offer(self, want: Want, runs: list[EntryRun]) -> list[Assignment]:
        assignments: list[Assignment] = []
        known = want.replay or self._cursor.may_know_from(want.position)
        self._holes = known and (self._cursor.has_holes or want.position <= self._cursor.mark_delete)
        self._given_back = known and self._cursor.has_redeliveries
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
        """Sends the first entries of lines, wherever they are in the read run."""
        assignments: list[Assignment] = []
        line_of = self._lines.key_of
        first = line_of.get(want.position)
        if first is None:
            return assignments  # all was rewound while it was read from storage
        if not runs or (runs[0].ledger_id, runs[0].first_entry) != want.position:
            self._lines.leave(want.position, first)  # trimmed meanwhile
        for run in runs:
            for offset in range(len(run.entries)):
                position = Position(run.ledger_id, run.first_entry + offset)
                key = line_of.get(position)
                if key is None or key.waiting[0] != position:
                    continue
                if self._holes and self._cursor.is_acked(position):
                    self._lines.leave(position, key)
                elif (taker := self._taker(key)) is not None:
                    self._lines.leave(position, key)
                    self._assign(taker, run, offset, position, key, assignments)
            self._end_run(run, assignments)
        return assignments

    def _offer_due(self, run: EntryRun, assignments: list[Assignment]) -> None:
        for offset, entry in enumerate(run.entries):
            if self.line_full:
                break
            position = Position(run.ledger_id, run.first_entry + offset)
            if position in self._due:
                self._due.discard(position)
                if not self._cursor.is_acked(position):
                    self._place(run, offset, position, self._key(self._hash_of(entry)), assignments)
        self._end_run(run, assignments)

    def _offer_new(self, run: EntryRun, assignments: list[Assignment]) -> None:
        holes = self._holes
        delays = self._delays
        if delays is not None and not delays.screen(run.entries):
            delays = None
        if delays is None and not holes and self._offer_plain(run, assignments):
            return
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
            self._place(run, offset, position, self._key(self._hash_of(entry)), assignments)
        self._end_run(run, assignments)

    def _offer_plain(self, run: EntryRun, assignments: list[Assignment]) -> bool:
        """The usual case: new entries of one message each, without acknowledgements or redeliveries. Each
        consumer's part is recorded at the end. False, with nothing done, in another case or near a limit."""
        count = len(run.entries)
        if (
            run.counts is not None
            or self._given_back
            or self.unacked.room < count
            or len(self._lines) + count > _WAITING_MAX
        ):
            return False
        keys, first = self._keys, run.first_entry
        ordered = not self.allow_out_of_order
        taken: dict[Consumer, tuple[list[int], list[Pending]]] = {}
        room_of: dict[Consumer, int] = {}
        for offset, key_hash in enumerate(map(self._hash_of, run.entries)):
            key = keys.get(key_hash)
            if key is None:
                key = keys[key_hash] = KeyState(key_hash)
            owner = key.owner or self._owner(key)
            if owner is None or (ordered and (key.waiting or (key.held and key.holder is not owner))):
                self._lines.add(Position(run.ledger_id, first + offset), key)
                continue
            room = room_of.get(owner)
            if room is None:
                room = owner.ask_messages()
            room_of[owner] = room - 1
            if room <= 0:
                self._lines.add(Position(run.ledger_id, first + offset), key)
                continue
            key.holder = owner
            key.held += 1
            mine = taken.get(owner)
            if mine is None:
                mine = taken[owner] = [], []
            mine[0].append(offset)
            mine[1].append(key.one_message)
        for owner, (rows, notes) in taken.items():
            positions = positions_of(run.ledger_id, [first + row for row in rows])
            owner.pending.update(zip(positions, notes, strict=True))
            owner.sent(len(rows))
            self.unacked.sent(len(rows))
            assignments.append(_assignment(owner, run, rows))
        self.read_position = Position(run.ledger_id, first + count)
        return True

    def _place(
        self, run: EntryRun, offset: int, position: Position, key: KeyState, assignments: list[Assignment]
    ) -> None:
        """Sends an entry, or appends it to the line of its hash."""
        behind = bool(key.waiting) and not self.allow_out_of_order
        taker = None if behind else self._taker(key)
        if taker is None:
            self._lines.add(position, key)
        else:
            self._assign(taker, run, offset, position, key, assignments)

    def _assign(
        self,
        consumer: Consumer,
        run: EntryRun,
        offset: int,
        position: Position,
        key: KeyState,
        assignments: list[Assignment],
    ) -> None:
        words = self._cursor.ack_set(position) if self._holes else None
        cost = 1 if run.counts is None else message_cost(run, offset, words)
        consumer.sent(cost)
        self.unacked.sent(cost)
        consumer.pending[position] = key.one_message if cost == 1 else Pending(cost, key.key_hash)
        key.holder = consumer
        key.held += 1
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

    def _send_again(self, positions: Collection[Position]) -> None:
        self._due.add_all(positions)

    def _comes_again(self, position: Position) -> bool:
        return position in self._due or position in self._lines.key_of

    def withdraw(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._due.discard(position)
            key = self._lines.key_of.get(position)
            if key is not None:
                self._lines.leave(position, key)

    def _released(self, consumer: Consumer, done: Sequence[Pending]) -> None:
        keys = self._keys
        for pending in done:
            key = keys[pending.key_hash]
            key.held -= 1
            if not key.held:
                holder, key.holder = key.holder, None
                if key.waiting and self._owner(key) is not holder:
                    self._lines.stuck = None

    def _requeue(self, given: Mapping[Position, Pending]) -> None:
        for position, pending in given.items():
            self._lines.add(position, self._key(pending.key_hash))

    def rewind(self, position: Position) -> None:
        super().rewind(position)
        self._keys.clear()
        self._lines.clear()
        self._due.clear()

    def check(self) -> None:
        super().check()
        self._lines.check(self._keys.values())
        held: dict[int, int] = {}
        for consumer in self._consumers:
            for pending in consumer.pending.values():
                held[pending.key_hash] = held.get(pending.key_hash, 0) + 1
                assert self.allow_out_of_order or self._keys[pending.key_hash].holder is consumer
        assert held == {key.key_hash: key.held for key in self._keys.values() if key.held}


def _assignment(consumer: Consumer, run: EntryRun, rows: list[int]) -> Assignment:
    first, last = rows[0], rows[-1]
    together = last - first + 1 == len(rows)
    return Assignment(consumer, run, first, last + 1, None, None, None if together else rows)
