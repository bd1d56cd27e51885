"""What broker and worker say to each other comes over as it was said."""

from __future__ import annotations

import os

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import DiskFullError, StorageError
from magnetar.tiered.parquet import requests
from magnetar.tiered.parquet.frames import decode_runs, runs_parts
from magnetar.tiered.parquet.handover import HANDOVER_BYTES, Handover
from magnetar.tiered.parquet.parquet_history import (
    DamagedSegmentError,
    FoundMessage,
    HistoryError,
    SegmentOrigin,
    SegmentSummary,
    StoredTopicSchema,
    segment_suffix,
)


def encode_runs(runs: list[EntryRun]) -> bytes:
    return b"".join(runs_parts(runs))


def test_runs_come_over() -> None:
    runs = [
        EntryRun(5, 7, [b"a", b"", b"c" * 1000], None, 100, 1_700_000_000_000),
        EntryRun(5, 10, [b"d", b"e"], [3, 1], 103, 1_700_000_000_001),
    ]
    (first, second) = decode_runs(encode_runs(runs))
    for sent, got in ((runs[0], first), (runs[1], second)):
        assert all(getattr(sent, name) == getattr(got, name) for name in EntryRun.__slots__)
    assert decode_runs(encode_runs([])) == []
    with pytest.raises(ValueError, match="frame"):
        decode_runs(encode_runs(runs) + b"x")


def test_runs_come_over_by_memory_that_both_see() -> None:
    if not hasattr(os, "memfd_create"):
        pytest.skip("a system without files that have no name: everything goes through the socket")
    ours = Handover.create()
    assert ours is not None
    theirs = Handover(os.dup(ours.file))
    runs = [EntryRun(5, 7, [b"a", b"", b"c" * 1000], None, 100, 1_700_000_000_000)]
    size = theirs.put(runs_parts(runs))
    assert size == len(encode_runs(runs))
    theirs.close()
    (got,) = decode_runs(ours.memory, size)
    assert all(getattr(runs[0], name) == getattr(got, name) for name in EntryRun.__slots__)
    assert ours.put([bytes(HANDOVER_BYTES), b"x"]) is None
    ours.close()


def test_origins_and_messages_come_over() -> None:
    origin = SegmentOrigin("persistent://a/b/c", 5, [StoredTopicSchema(bytes(8), 2, b"\x00{}", {"a": "b"})])
    assert requests.load_origin(requests.load(requests.dump(requests.dump_origin(origin)))) == origin
    message = FoundMessage(
        ledger_id=5,
        entry_id=1,
        batch_index=-1,
        index=7,
        publish_time_ms=1,
        event_time_ms=None,
        key=b"\xff",
        key_is_string=False,
        properties=(("a", "b"), ("a", "c")),
        producer_name="p",
        sequence_id=3,
        broker_time_ms=2,
        schema_version=b"\x00\xff",
        chunks=1,
        is_null_value=False,
        payload=b"\x00",
    )
    assert requests.load_messages(requests.load(requests.dump_messages([message], ""))) == [message]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DamagedSegmentError("x"), DamagedSegmentError),
        (DiskFullError("x"), DiskFullError),
        (StorageError("x"), HistoryError),
        (ZeroDivisionError("x"), HistoryError),
    ],
)
def test_errors_come_over(error: Exception, kind: type[Exception]) -> None:
    got = requests.load_error(requests.dump_error(error, "what happened"))
    assert type(got) is kind
    assert str(got) == "what happened"


def test_summaries_are_checked() -> None:
    with pytest.raises(DamagedSegmentError, match="summary"):
        SegmentSummary.from_json("{}")
    assert segment_suffix(5, 12) == "-0000000000000000005-0000000000000000012.parquet"
