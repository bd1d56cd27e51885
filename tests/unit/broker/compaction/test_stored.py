"""Compacted ledgers of Pulsar's: what an entry holds is known from the entry."""

from __future__ import annotations

import asyncio

import pytest

from fakes.ledgers import FakeLedgers
from magnetar.base.entries import TIME_MS_MAX, EntryRun
from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.compaction.codec import encode
from magnetar.broker.compaction.stored import CompactedLedger
from magnetar.ledger.remote.stored_entries import stored
from magnetar.ledger.whole import write_whole
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

PLACE = Position(LedgerId(7), 3)


def entry(messages: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if messages > 1:
        metadata.num_messages_in_batch = messages
    return build_entry(metadata, b"payload")


def read(kept: bytes) -> EntryRun:
    async def story() -> EntryRun:
        ledgers = FakeLedgers()
        ledger_id = await write_whole(ledgers, [encode(PLACE, -1, kept)], {}, 0)
        (run,) = await CompactedLedger(await ledgers.open(ledger_id)).read(PLACE, 1 << 20, 10)
        return run

    return asyncio.run(story())


@pytest.mark.parametrize("messages", [1, 5])
def test_the_number_of_messages_is_the_entrys(messages: int) -> None:
    run = read(entry(messages))
    assert (run.ledger_id, run.first_entry) == PLACE
    assert run.entries == [entry(messages)]
    assert run.message_count == messages


def test_broker_metadata_inside_is_taken_off() -> None:
    (with_metadata,) = stored([entry(5)], [5], 100, 77)
    run = read(with_metadata)
    assert run.entries == [entry(5)]
    assert (run.base_index, run.message_count, run.broker_time_ms) == (100, 5, 77)


def test_damage_is_told() -> None:
    with pytest.raises(CorruptDataError):
        read(b"\x0e\x02\x00")


def test_a_time_that_no_date_holds_is_the_last_one() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=(1 << 64) - 1)
    assert read(build_entry(metadata, b"payload")).broker_time_ms == TIME_MS_MAX
