"""Values of logs: our bytes, and Pulsar's."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.cursors.cursor_codec import decode_entry, decode_info
from magnetar.managedlog.cursors.entry_set import EntrySet
from magnetar.managedlog.errors import InvalidLogDataError, LedgerIdsWentBackError
from magnetar.managedlog.log_metadata import LedgerRecord, LogMetadata, decode, encode, log_path
from magnetar.tiered.context import OffloadContext, OffloadedCopy, OffloadedSegment
from magnetar.tiered.parquet.parquet_history import Footer

COPY = OffloadContext(
    UUID("f2345678-1234-5678-9abc-def012345678"),
    "s3://bucket/folder",
    complete=True,
    local_deleted=True,
    timestamp_ms=1_700_000_000_000,
    segments=(OffloadedSegment(0, 6, 1000), OffloadedSegment(7, 9, 20, Footer(700, 0xFFFF_FFFF))),
)


def test_round_trip() -> None:
    metadata = LogMetadata(
        ledgers=(LedgerRecord(3, 10, 100, 5, 0, COPY), LedgerRecord(7, base_index=17)),
        terminated=Position(7, -1),
        properties={"a": "b"},
        next_index=17,
        last_broker_time_ms=5,
        deleted_ledgers=(1, 2),
        deleted_copies=(OffloadedCopy(2, OffloadContext(UUID(int=5), "file:///gone")),),
    )
    assert decode(encode(metadata), "test") == metadata
    assert decode(encode(LogMetadata()), "test") == LogMetadata()


def test_golden_bytes_of_pulsars_fields() -> None:
    # ledgerInfo {ledgerId 3, entries 10, size 100, timestamp 5}, ledgerInfo {ledgerId 7}, properties {a: b}
    data = bytes.fromhex("0a08 0803 100a 1864 2005 0a02 0807 1a06 0a0161 120162")
    metadata = decode(data, "test")
    assert metadata.ledgers == (LedgerRecord(3, 10, 100, 5), LedgerRecord(7))
    assert metadata.properties == {"a": "b"}
    assert [record.sealed for record in metadata.ledgers] == [True, False]


def test_sealing_tells_the_next_ledger_its_index() -> None:
    metadata = LogMetadata(ledgers=(LedgerRecord(3), LedgerRecord(7)))
    sealed = metadata.sealing(LedgerRecord(3, 10, 100, 50, 0), next_index=25, last_broker_time_ms=40)
    assert sealed.ledgers == (LedgerRecord(3, 10, 100, 50, 0), LedgerRecord(7, base_index=25))
    assert (sealed.next_index, sealed.last_broker_time_ms) == (25, 40)
    assert sealed.without(frozenset({3})).deleted_ledgers == (3,)


def test_a_new_ledger_is_behind_all_others() -> None:
    metadata = LogMetadata(ledgers=(LedgerRecord(3, 10, 100, 5),)).adding(LedgerRecord(7))
    for id_from_older_metadata in (1, 7):
        with pytest.raises(LedgerIdsWentBackError, match="already has ledger 7"):
            metadata.adding(LedgerRecord(LedgerId(id_from_older_metadata)))


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x02\x08\x07\x0a\x02\x08\x03", b"\x0a\x00"])
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidLogDataError, match="somewhere"):
        decode(data, "somewhere")


@pytest.mark.parametrize("data", [b"\xff", b""])
def test_bytes_that_are_no_cursor_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidLogDataError, match="somewhere"):
        decode_info(data, "somewhere")
    with pytest.raises(InvalidLogDataError, match="somewhere"):
        decode_entry(data, "somewhere")


def test_a_pulsar_cursor_is_read() -> None:
    def at(ledger_id: int, entry_id: int) -> pb.NestedPositionInfo:
        return pb.NestedPositionInfo(ledgerId=ledger_id, entryId=entry_id)

    position = pb.PositionInfo(
        ledgerId=3,
        entryId=4,
        individualDeletedMessages=[
            pb.MessageRange(lowerEndpoint=at(3, 5), upperEndpoint=at(3, 7)),
            pb.MessageRange(lowerEndpoint=at(3, 9), upperEndpoint=at(5, 1)),
        ],
        batchedEntryDeletionIndexInfo=[
            pb.BatchedEntryDeletionIndexInfo(position=at(3, 8), deleteSet=[-1, 3])
        ],
        properties=[pb.LongProperty(name="n", value=-2)],
    )
    state = decode_entry(position.SerializeToString(), "test")
    assert state.replaces
    assert state.mark_delete == Position(3, 4)
    ranges = {ledger_id: list(entries.ranges()) for ledger_id, entries in state.acked.items()}
    # The range over two ledgers counts in its last one only: rather too little is acknowledged.
    assert ranges == {3: [(6, 7)], 5: [(0, 1)]}
    assert state.partial == {Position(3, 8): (3 << 64) | ((1 << 64) - 1)}
    assert state.properties == {"n": -2}
    assert isinstance(state.acked[LedgerId(3)], EntrySet)


def test_paths_are_pulsars() -> None:
    assert log_path("public/default/persistent/t") == "/managed-ledgers/public/default/persistent/t"


def test_pulsars_offload_context_is_kept_as_it_is() -> None:
    info = pb.ManagedLedgerInfo()
    ledger = info.ledgerInfo.add(ledgerId=3, entries=10, size=100, timestamp=5)
    ledger.offloadContext.uidMsb, ledger.offloadContext.uidLsb = -5, 7
    ledger.offloadContext.complete = ledger.offloadContext.bookkeeperDeleted = True
    ledger.offloadContext.driverMetadata.name = "aws-s3"
    ledger.offloadContext.driverMetadata.properties.add(key="bucket", value="history")
    metadata = decode(info.SerializeToString(), "test")
    context = metadata.ledgers[0].offload
    assert context is not None
    assert (context.complete, context.local_deleted, context.url) == (True, True, "")
    assert (
        pb.ManagedLedgerInfo.FromString(encode(metadata)).ledgerInfo[0].offloadContext
        == ledger.offloadContext
    )


def test_a_copy_is_noted_when_its_ledger_leaves_the_list() -> None:
    metadata = LogMetadata(ledgers=(LedgerRecord(3, 10, 100, 5), LedgerRecord(7)))
    copied = metadata.offloading(3, replace(COPY, local_deleted=False))
    assert copied.deleted_ledgers == ()
    assert copied.offloading(3, COPY).deleted_ledgers == (3,)
    trimmed = copied.offloading(3, COPY).without(frozenset({3}))
    assert trimmed.deleted_copies == (OffloadedCopy(3, COPY),) == trimmed.copies


@pytest.mark.parametrize("segments", ["5:x", "5", "5:1,4:1"])
def test_a_copy_that_makes_no_sense_is_refused(segments: str) -> None:
    info = pb.ManagedLedgerInfo()
    ledger = info.ledgerInfo.add(ledgerId=3, entries=10, size=100, timestamp=5)
    ledger.offloadContext.driverMetadata.name = "magnetar-parquet"
    ledger.offloadContext.driverMetadata.properties.add(key="segments", value=segments)
    with pytest.raises(InvalidLogDataError, match="copy of a ledger"):
        decode(info.SerializeToString(), "test")
