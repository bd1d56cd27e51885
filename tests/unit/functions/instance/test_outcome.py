"""When an entry waits for nothing more, and in which order entries are done."""

from __future__ import annotations

import pytest

from magnetar.functions.instance.batches_in import TakenEntry
from magnetar.functions.instance.outcome import InFlight
from magnetar.wire import pulsar_pb2 as pb


def entry(number: int, source: int = 0) -> TakenEntry:
    return TakenEntry(source, (1, number, number, 1), pb.MessageMetadata(), [b""])


def test_an_entry_is_done_when_all_that_it_waits_for_has_happened() -> None:
    flight, one = InFlight(by_source=False), entry(1)
    flight.add(one)
    one.waits += 1
    flight.release(one)
    assert flight.take_done() == []
    flight.release(one)
    assert flight.take_done() == [one]
    assert flight.take_done() == []
    with pytest.raises(AssertionError):
        flight.release(one)


def test_entries_of_a_source_are_done_in_their_order() -> None:
    """The stored position of effectively once speaks for all entries before it."""
    flight = InFlight(by_source=True)
    first, second, other = entry(1), entry(2), entry(1, source=1)
    for each in (first, second, other):
        flight.add(each)
    flight.release(second)
    flight.release(other)
    assert flight.take_done() == [other]
    flight.release(first)
    assert flight.take_done() == [first, second]
