"""Key_Shared while a read from storage is under way: what was wanted may no longer be."""

from __future__ import annotations

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.dispatch.hashing import key_hash
from magnetar.broker.dispatch.keyshared import KeySharedDispatcher
from magnetar.broker.topic.entry import entry_hash
from support.dispatch_machines import Acks, Pipe


def run_of(first: int, count: int) -> EntryRun:
    return EntryRun(0, first, [b"k"] * count, None, first, 0)


def dispatcher_with_line() -> tuple[KeySharedDispatcher, Consumer]:
    """Entry 0 is in flight at the consumer, 1 and 2 wait in line behind it."""
    dispatcher = KeySharedDispatcher(
        Acks(), Position(0, 0), sticky=False, allow_out_of_order=False, hash_of=lambda entry: 7
    )
    consumer = Consumer(consumer_id=1, name="c", outlet=Pipe(), permits=1)
    dispatcher.add(consumer)
    want = dispatcher.want()
    assert want is not None
    dispatcher.offer(want, [run_of(0, 3)])
    consumer.permits = 1
    return dispatcher, consumer


def test_an_earlier_entry_given_back_during_the_read_goes_first() -> None:
    dispatcher, consumer = dispatcher_with_line()
    want = dispatcher.want()
    assert want is not None
    assert want.position == Position(0, 1)
    dispatcher.redeliver(consumer, None)
    assert dispatcher.offer(want, [run_of(1, 1)]) == []
    again = dispatcher.want()
    assert again is not None
    assert again.position == Position(0, 0)
    dispatcher.check()


def test_a_rewind_during_the_read_drops_what_was_read() -> None:
    dispatcher, _ = dispatcher_with_line()
    want = dispatcher.want()
    assert want is not None
    dispatcher.rewind(Position(0, 2))
    assert dispatcher.offer(want, [run_of(1, 1)]) == []
    again = dispatcher.want()
    assert again is not None
    assert again.position == Position(0, 2)


def test_damaged_entries_have_a_hash_too() -> None:
    for entry in (
        b"",
        b"junk",
        b"\x0e\x01" + bytes(40),
        b"\x0e\x01\0\0\0\0\0\0\0\x09\x0a\x01p\x10\x01\x18\x02\x32\x09key",
    ):
        assert entry_hash(entry) == key_hash(b"NONE_KEY")


def test_a_key_that_is_no_text_has_the_hash_of_its_bytes() -> None:
    metadata = b"\x0a\x01p\x10\x01\x18\x02\x22\x06\x0a\x01k\x12\x01v\x32\x01\xff"
    assert entry_hash(b"\x0e\x01\0\0\0\0" + len(metadata).to_bytes(4, "big") + metadata) == key_hash(b"\xff")


def test_who_looks_at_lines_asks_for_nothing() -> None:
    # The page that explains a subscription asked the consumers' connections for room, so that the pump was
    # called because of a look.
    class Full(Pipe):
        writable = False
        asked = 0

        def ask_output(self) -> bool:
            self.asked += 1
            return False

    dispatcher, consumer = dispatcher_with_line()
    assert dispatcher.can_serve_line
    full = Full()
    consumer.outlet = full
    assert not dispatcher.can_serve_line
    assert len(dispatcher.lines(10)) == 1
    assert full.asked == 0
    dispatcher.want()
    assert full.asked == 1
