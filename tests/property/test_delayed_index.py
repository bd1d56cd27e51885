"""The index of delayed entries with its segments against a dictionary: never early, never lost, never twice,
also when the process crashes, segments cannot be written or read, and clocks jump."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.base.ids import EARLIEST, Position
from magnetar.broker.delayed.index import DelayedIndex, IndexLimits
from magnetar.broker.delayed.segment import BadSegmentError, Sealing, decode_foot
from magnetar.broker.delayed.wheel import TICK_MS

SECOND = 1_000
HOUR = 3_600 * SECOND
YEAR = 365 * 24 * HOUR
LIMITS = IndexLimits(seal_min=12, seal_max=40, segments_max=3, chunk_records=5)

delays = st.one_of(
    st.integers(-5, 200),
    st.integers(0, 20 * SECOND),
    st.integers(0, 2 * HOUR),
    st.integers(0, 10 * YEAR),
    st.just(100 * YEAR),
)


class IndexMachine(RuleBasedStateMachine):
    """`log` is what a subscription has to deliver, `disk` what outlives a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.index = DelayedIndex(LIMITS)
        self.now_ms = 1_700_000_000_000
        self.log: dict[Position, int] = {}
        self.acked: set[Position] = set()
        self.delivered: set[Position] = set()
        self.disk: dict[int, list[bytes]] = {}
        self.sealing: Sealing | None = None
        self.made = 0
        self.ledgers = 100

    def waiting(self) -> dict[Position, int]:
        gone = self.acked | self.delivered
        return {position: due_ms for position, due_ms in self.log.items() if position not in gone}

    def read(self, position: Position) -> None:
        """As a dispatcher does with an entry that it reads from the log."""
        if position in self.index:
            return
        if self.log[position] <= self.now_ms:
            self.delivered.add(position)
        else:
            assert self.index.add(position, self.log[position], self.now_ms)

    @rule(delay_ms=delays, count=st.integers(1, 40), spread_ms=st.sampled_from([0, 1, 77, 9_999, HOUR]))
    def publish(self, delay_ms: int, count: int, spread_ms: int) -> None:
        for i in range(count):
            self.made += 1
            position = Position(self.made // 50, self.made)
            self.log[position] = self.now_ms + delay_ms + (i * 7 % count) * spread_ms
            self.read(position)

    @rule(count_max=st.integers(1, 50))
    def pop(self, count_max: int) -> None:
        found = self.index.pop_due(self.now_ms, count_max)
        assert len(found) <= count_max
        for position in found:
            assert self.log[position] <= self.now_ms, "early"
            assert position not in self.delivered, "twice"
            assert position not in self.acked, "for nothing"
            self.delivered.add(position)

    @rule(count=st.integers(1, 5))
    def ack_delivered(self, count: int) -> None:
        self.acked |= set(sorted(self.delivered)[:count])

    @rule(data=st.data())
    def ack_held(self, data: st.DataObject) -> None:
        if waiting := sorted(self.waiting()):
            done = data.draw(st.lists(st.sampled_from(waiting), unique=True, max_size=10))
            self.index.discard(done)
            self.acked |= set(done)

    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        if self.log:
            upto = data.draw(st.sampled_from(sorted(self.log)))
            self.index.forget_upto(upto)
            self.acked |= {position for position in self.log if position <= upto}

    @rule(
        step_ms=st.one_of(
            delays.filter(lambda ms: 0 <= ms <= YEAR), st.integers(-HOUR, 0), st.integers(-YEAR, 0)
        )
    )
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @precondition(lambda self: self.sealing is None)
    @rule()
    def begin_seal(self) -> None:
        self.sealing = self.index.next_seal(self.now_ms)

    @precondition(lambda self: self.sealing is not None)
    @rule(works=st.booleans())
    def end_seal(self, works: bool) -> None:
        sealing, self.sealing = self.sealing, None
        assert sealing is not None
        if not works:
            self.index.unsealed(sealing, self.now_ms)
            return
        for _ in sealing.encode():
            pass
        self.ledgers += 1
        self.disk[self.ledgers] = sealing.entries
        self.index.sealed(sealing, self.ledgers)

    @rule()
    def seal(self) -> None:
        if self.sealing is None:
            self.begin_seal()
        if self.sealing is not None:
            self.end_seal(works=True)

    @rule()
    def load(self) -> None:
        place = self.index.next_load(self.now_ms)
        if place is not None:
            self.index.loaded(place[0], self.disk[place[0]][place[1]], self.now_ms)

    @rule()
    def give_back(self) -> None:
        for ledger_id in self.index.take_obsolete():
            del self.disk[ledger_id]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Any of the segments may be lost or damaged; all else is read from the log again."""
        self.index, self.sealing = DelayedIndex(LIMITS), None
        self.delivered &= self.acked
        mark = EARLIEST
        for position in sorted(self.log):
            if position not in self.acked:
                break
            mark = position
        for ledger_id in list(self.disk):
            fate = data.draw(st.sampled_from(["kept", "kept", "lost", "damaged"]))
            foot = self.disk[ledger_id][-1]
            try:
                segment, positions = decode_foot(ledger_id, b"" if fate == "damaged" else foot)
            except BadSegmentError:
                fate = "lost"
            if fate == "lost":
                del self.disk[ledger_id]
            else:
                self.index.restore(segment, positions, mark)
        self.index.forget_upto(mark)
        self.index.discard(sorted(self.acked))
        for position in sorted(set(self.log) - self.acked):
            self.read(position)

    @rule()
    def drain(self) -> None:
        if self.sealing is not None:
            self.end_seal(works=True)
        while (due_ms := self.index.next_due_ms()) is not None and due_ms <= self.now_ms:
            self.load()
            self.pop(1_000)
        assert all(due_ms + TICK_MS > self.now_ms for due_ms in self.waiting().values()), "late"

    @invariant()
    def consistent(self) -> None:
        self.index.check()
        waiting = self.waiting()
        assert len(self.index) == len(waiting)
        assert all(position in self.index for position in waiting)

    def teardown(self) -> None:
        if self.sealing is not None:
            self.end_seal(works=True)
        while (due_ms := self.index.next_due_ms()) is not None:
            self.now_ms = max(self.now_ms, due_ms)
            self.drain()
        assert not self.waiting()
        self.give_back()
        assert not self.disk, "a segment stays behind"


def test_a_chunk_that_begins_with_the_end_of_a_wide_slot_is_read_in_time() -> None:
    """Entries of a wide slot of the wheel, and of the narrow ones that it reaches over: the chunk with both
    begins with a late time, and has early ones behind it."""
    index = DelayedIndex(IndexLimits(seal_min=4, seal_max=100, chunk_records=100))
    start_ms = 1_700_000_000_000
    due: dict[Position, int] = {}

    def add(number: int, due_ms: int, now_ms: int) -> None:
        due[Position(1, number)] = due_ms
        index.add(Position(1, number), due_ms, now_ms)

    now_ms = start_ms
    for i in range(6):
        # Hours away: in a slot that is thirty-five minutes wide.
        add(i, start_ms + 3 * HOUR + i * 60 * SECOND, now_ms)
    now_ms = start_ms + 3 * HOUR - 20 * 60 * SECOND
    for i in range(6, 20):
        add(i, start_ms + 3 * HOUR - 10 * 60 * SECOND + i * 77 * SECOND, now_ms)
    sealing = index.next_seal(now_ms)
    assert sealing is not None
    for _ in sealing.encode():
        pass
    index.sealed(sealing, 7)
    late_ms = 0
    while len(index):
        now_ms = max(now_ms, index.next_due_ms() or 0)
        while (place := index.next_load(now_ms)) is not None:
            index.loaded(place[0], sealing.entries[place[1]], now_ms)
        for position in index.pop_due(now_ms, 100):
            late_ms = max(late_ms, now_ms - due[position])
    assert late_ms <= TICK_MS


def test_segments_of_former_versions_are_read_at_once() -> None:
    index = DelayedIndex(IndexLimits(seal_min=4, seal_max=100, chunk_records=3))
    for i in range(8):
        index.add(Position(1, i), 1_700_000_000_000 + i * HOUR, 0)
    sealing = index.next_seal(0)
    assert sealing is not None
    for _ in sealing.encode():
        pass
    segment, _ = decode_foot(7, b"MDS1" + sealing.entries[-1][4:])
    assert segment.next_ms == 0
    assert segment.left == len(sealing.entries) - 1


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
