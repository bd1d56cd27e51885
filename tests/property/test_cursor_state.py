"""CursorState, with its deltas, against sets of positions."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.base.ids import EARLIEST, LATEST, Position
from magnetar.managedlog.cursors.cursor_codec import decode_entry, encode_entry
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.ledger_list import Ledger, LedgerList

BATCH = 70
"""Messages per batch: more than one word."""

positions = st.builds(Position, st.sampled_from([-1, 2, 4, 5, 9, 12]), st.integers(-1, 12)) | st.sampled_from(
    [EARLIEST, LATEST]
)


class CursorMachine(RuleBasedStateMachine):
    """Ledgers 2 (5 entries), 4 (empty), 5 (3 entries), 9 (current, grows)."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = LedgerList()
        for ledger_id, entries in ((2, 5), (4, 0), (5, 3)):
            self.ledgers.add(Ledger.sealed(ledger_id, 0, entries=entries, size_bytes=entries, timestamp_ms=1))
        self.current = Ledger(9, 0)
        self.ledgers.add(self.current)
        self.state = CursorState(self.ledgers, Position(2, -1))
        self.acked: set[Position] = set()
        self.partial: dict[Position, int] = {}
        # What was written since the last snapshot, and the model as of each write.
        self.written: list[bytes] = []
        self.durable: tuple[set[Position], dict[Position, int], dict[Position, int]] = (set(), {}, {})
        self.given_back: dict[Position, int] = {}

    def existing(self) -> list[Position]:
        return [
            Position(ledger.ledger_id, entry) for ledger in self.ledgers for entry in range(ledger.entries)
        ]

    @initialize()
    def begin(self) -> None:
        self.write_snapshot()

    @rule(count=st.integers(1, 4))
    def grow(self, count: int) -> None:
        self.ledgers.grow(self.current, count, count, 1)

    @rule(vector=st.lists(positions, max_size=8))
    def ack(self, vector: list[Position]) -> None:
        exist = set(self.existing())
        new = (set(vector) & exist) - self.acked
        assert self.state.ack(vector) == bool(new)
        self.acked |= new
        for position in new:
            self.partial.pop(position, None)

    @rule(position=positions, left=st.integers(0, (1 << BATCH) - 1) | st.sampled_from([0, 1, 1 << 69]))
    def ack_batch(self, position: Position, left: int) -> None:
        words = [left & (1 << 64) - 1, left >> 64]
        if not words[1]:
            del words[1]
        whole = self.state.ack_batch(position, words, BATCH)
        if position not in self.existing() or position in self.acked:
            assert not whole
            return
        rest = self.partial.get(position, (1 << BATCH) - 1) & left
        assert whole == (rest == 0)
        if rest:
            self.partial[position] = rest
        else:
            self.partial.pop(position, None)
            self.acked.add(position)

    @rule(position=positions)
    def ack_cumulative(self, position: Position) -> None:
        self.state.ack_cumulative(position)
        for known in self.existing():
            if known <= position:
                self.acked.add(known)
                self.partial.pop(known, None)

    @rule(after=positions, before=positions)
    def ack_between(self, after: Position, before: Position) -> None:
        new = {each for each in self.existing() if after < each < before} - self.acked
        # Mark-delete may also move to the start of an empty ledger, and no entry is new.
        assert self.state.ack_between(after, before) or not new
        self.acked |= new
        for position in new:
            self.partial.pop(position, None)

    @rule(vector=st.lists(positions, max_size=8))
    def give_back(self, vector: list[Position]) -> None:
        known = [each for each in vector if each in self.existing() and each not in self.acked]
        assert self.state.redelivered(vector) == bool(known)
        for position in known:
            self.given_back[position] = self.given_back.get(position, 0) + 1

    @rule(position=positions)
    def reset(self, position: Position) -> None:
        self.state.reset(position)
        self.acked = {known for known in self.existing() if known < position}
        self.partial = {}
        self.given_back = {}

    @rule()
    def write_delta(self) -> None:
        self.written.append(encode_entry(self.state.take_delta()))
        self.durable = (set(self.acked), dict(self.partial), dict(self.given_back))

    @rule()
    def write_snapshot(self) -> None:
        self.written = [encode_entry(self.state.snapshot())]
        self.durable = (set(self.acked), dict(self.partial), dict(self.given_back))

    @rule()
    def crash(self) -> None:
        """Only what was written is known after it."""
        self.state = CursorState(self.ledgers, EARLIEST)
        for entry in self.written:
            self.state.apply(decode_entry(entry, "test"))
        self.state.settle()
        acked, partial, given_back = self.durable
        self.acked, self.partial, self.given_back = set(acked), dict(partial), dict(given_back)

    @invariant()
    def agrees(self) -> None:
        state = self.state
        state.check()
        existing = self.existing()
        missing = [position for position in existing if position not in self.acked]
        for position in existing:
            assert state.is_acked(position) == (position in self.acked)
            words = state.ack_set(position)
            bits = None if words is None else sum(word << 64 * i for i, word in enumerate(words))
            assert bits == self.partial.get(position)
        self.given_back = {
            position: count for position, count in self.given_back.items() if not state.is_acked(position)
        }
        assert dict(state.redeliveries.counts) == self.given_back
        end = existing[-1]
        follow = self.ledgers.next_position(end)
        expected = missing[0] if missing else follow
        assert state.next_unacked(EARLIEST) == expected
        for position in existing:
            later = [other for other in missing if other >= position]
            assert state.next_unacked(position) == (later[0] if later else follow)
        for position in existing:
            known = any(other >= position for other in (*self.acked, *self.partial, *self.given_back))
            assert known <= state.may_know_from(position)
            if not self.partial and not self.given_back:
                assert known == state.may_know_from(position)
        backlog = self.ledgers.entries_between(state.mark_delete, self.ledgers.last_position)
        assert backlog - state.acked_count == len(missing)
        # Mark-delete is as far as it can be.
        assert all(position <= state.mark_delete for position in existing if position < expected)
        assert missing == [] or state.mark_delete < missing[0]


CursorMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestCursorState = CursorMachine.TestCase
