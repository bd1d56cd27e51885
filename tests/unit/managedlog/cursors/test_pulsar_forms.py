"""Cursors as Pulsar 4.2.4 writes them are read, and what is written for it can be read by it.

The values are those that `tests/compat/adoption` makes a broker of Pulsar's write."""

from __future__ import annotations

import asyncio

import pytest

from fakes.managed_logs import Process
from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.cursors.cursor_codec import IN_STORE, decode_entry, decode_info, encode_entry
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log_metadata import decode

IN_NODE = bytes.fromhex(
    "08ffffffffffffffffff01100c180030a2a2a39ca2343a090a04080c100110830 73a090a04080c100310d707".replace(
        " ", ""
    )
)
"""A stored cursor with two half-acknowledged batches."""
LEDGERS = bytes.fromhex("0a0e081f101418e60620949da39ca2340a0408212000")
"""A closed ledger, and the open one."""


def entries(*numbers: int) -> EntrySet:
    made = EntrySet()
    for number in numbers:
        made.add(number)
    return made


def test_a_cursor_in_a_node() -> None:
    info = decode_info(IN_NODE, "v")
    assert info.ledger_id == IN_STORE
    assert info.state.mark_delete == Position(LedgerId(12), 0)
    assert info.state.partial == {
        Position(LedgerId(12), 1): 0b1110000011,
        Position(LedgerId(12), 3): 0b1111010111,
    }


def test_a_list_of_ledgers() -> None:
    closed, current = decode(LEDGERS, "v").ledgers
    assert (closed.ledger_id, closed.entries, closed.size_bytes) == (31, 20, 870)
    assert current.ledger_id == 33
    assert not current.sealed


@pytest.mark.parametrize("numbers", [(0,), (63, 64), (1, 1023, 1024, 70_000)])
def test_words_are_sets_of_entries(numbers: tuple[int, ...]) -> None:
    bits = sum(1 << number for number in numbers)
    made = EntrySet.of_bits(bits)
    made.check()
    assert made.chunks == entries(*numbers).chunks
    assert made.bits() == bits


def test_acknowledged_entries_as_words() -> None:
    stored = pb.PositionInfo(ledgerId=5, entryId=1)
    stored.individualDeletedMessageRanges.add(key=5, values=[0b1000, -(1 << 63)])
    stored.individualDeletedMessageRanges.add(key=9, values=[])
    delta = decode_entry(stored.SerializeToString(), "v")
    assert delta.replaces
    assert {ledger: list(acked.ranges()) for ledger, acked in delta.acked.items()} == {
        5: [(3, 3), (127, 127)]
    }
    # Pulsar's brokers read ranges first.
    stored.individualDeletedMessages.add(
        lowerEndpoint=pb.NestedPositionInfo(ledgerId=5, entryId=9),
        upperEndpoint=pb.NestedPositionInfo(ledgerId=5, entryId=11),
    )
    acked = decode_entry(stored.SerializeToString(), "v").acked
    assert list(acked[LedgerId(5)].ranges()) == [(10, 11)]


def test_damaged_ranges_are_refused_and_not_expanded() -> None:
    stored = pb.PositionInfo(ledgerId=5, entryId=1)
    for upper in (1 << 31, 1 << 32):
        stored.individualDeletedMessages.add(
            lowerEndpoint=pb.NestedPositionInfo(ledgerId=5, entryId=upper - 2),
            upperEndpoint=pb.NestedPositionInfo(ledgerId=5, entryId=upper),
        )
    assert decode_entry(stored.SerializeToString(), "v").acked[LedgerId(5)].count == 4
    stored.individualDeletedMessages[1].upperEndpoint.entryId = 1 << 62
    with pytest.raises(InvalidLogDataError, match="a range ends with entry"):
        decode_entry(stored.SerializeToString(), "v")
    value = pb.ManagedCursorInfo(cursorsLedgerId=-1)
    value.individualDeletedMessages.append(stored.individualDeletedMessages[1])
    with pytest.raises(InvalidLogDataError, match="a range ends with entry"):
        decode_info(value.SerializeToString(), "v")


def test_many_words_take_time_by_their_number() -> None:
    chunks = 10_000
    made = EntrySet.of_bits(int.from_bytes((b"\1" + bytes(127)) * chunks, "little"))
    assert (made.count, made.last()) == (chunks, (chunks - 1) * 1024)


@pytest.mark.parametrize("holes", [10, 10_001])
def test_what_is_written_for_pulsar_has_only_its_fields(holes: int) -> None:
    acked = {LedgerId(5): entries(*range(2, 2 + 2 * holes, 2))}
    delta = CursorDelta(Position(LedgerId(5), 0), True, acked, {Position(LedgerId(5), 1): 0b101}, {"n": 7})
    stored = encode_entry(delta, for_pulsar=True)
    info = pb.PositionInfo.FromString(stored)
    assert not info.HasField("acked")
    assert bool(info.individualDeletedMessages) is (holes <= 10_000)
    assert bool(info.individualDeletedMessageRanges) is (holes > 10_000)
    again = decode_entry(stored, "v")
    assert again.acked[LedgerId(5)].chunks == acked[LedgerId(5)].chunks
    assert (again.partial, again.properties) == (delta.partial, delta.properties)


@pytest.mark.parametrize("fold_max", [1000, 2])
def test_the_last_entry_of_a_ledger_is_the_whole_state(fold_max: int) -> None:
    """With few ranges each entry is; with many, the one that is written when the cursor is closed."""

    async def story() -> None:
        config = ManagedLogConfig(cursors_for_pulsar=True, cursor_fold_ranges_max=fold_max)
        process = Process(config=config)
        log, _ = await process.open()
        cursor = await log.open_cursor("s", initial="earliest")
        ledger = log.append([b"x"] * 100, None).ledger_id
        process.ledgers.sync()
        await process.settle()
        for entry in (5, 9, 20, 30):
            cursor.ack([Position(ledger, entry)])
            await cursor.flush()
        own = cursor.ledger_id
        written = [entry for run in process.ledgers.ledgers[own].runs for entry in run.entries]
        assert all(not pb.PositionInfo.FromString(each).HasField("acked") for each in written[:1])
        if fold_max == 1000:
            assert [decode_entry(each, "v").replaces for each in written] == [True] * len(written)
            return
        await process.logs.close()
        (last,) = process.ledgers.tagged("s")
        whole = process.ledgers.ledgers[last].runs[-1].entries[-1]
        found = decode_entry(whole, "v")
        assert found.replaces
        assert not pb.PositionInfo.FromString(whole).HasField("acked")
        assert list(found.acked[ledger].ranges()) == [(5, 5), (9, 9), (20, 20), (30, 30)]

    asyncio.run(story())
