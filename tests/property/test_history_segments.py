"""A written segment gives its entries back, from any place, and the Parquet file holds the messages."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.history_entries import ledgers

from magnetar.base.entries import EntryRun
from magnetar.history.files import LocalFile
from magnetar.history.reader import SegmentReader
from magnetar.history.verifying import verify_segment
from magnetar.history.writer import write_segment
from magnetar.tiered.parquet.api import SegmentOrigin, TopicSchema
from magnetar.wire import pulsar_pb2 as pb

ORIGIN = SegmentOrigin("persistent://public/default/history", 7)
DEFINITION = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'
WITH_SCHEMA = SegmentOrigin(ORIGIN.topic, 7, [TopicSchema(bytes(8), pb.Schema.Type.Json, DEFINITION)])


@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ledgers(), st.data())
def test_segments_give_back_what_they_took(runs: list[EntryRun], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "segment")
        summary = write_segment(runs, data.draw(st.sampled_from([ORIGIN, WITH_SCHEMA])), path)
        source = LocalFile(path)
        assert summary.file_bytes == source.size
        assert verify_segment(SegmentReader(source), runs) == sum(len(run.entries) for run in runs)
        entry = data.draw(st.integers(summary.first_entry, summary.last_entry))
        (read, *_) = SegmentReader(source).entries(entry, data.draw(st.integers(0, 2000)))
        assert read.first_entry == entry
        table = pq.read_table(path)
        source.close()
    table.validate(full=True)
    assert table.num_rows == summary.rows
    assert pc.count(table["raw_entry"]).as_py() == summary.raw_entries
    assert table["entry_id"].to_pylist() == sorted(table["entry_id"].to_pylist())
    assert summary.messages == sum(run.message_count for run in runs)
