"""Files of history read for their columns: those of several ledgers are opened and read once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.arrow.decode import Decoder
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.history.files import LocalFile
from magnetar.history.merging import merge_segments
from magnetar.history.writer import write_segment
from magnetar.spark import history
from magnetar.spark.history import LastFile, read_stretch
from magnetar.spark.history_columns import SegmentColumns
from magnetar.spark.stretches import HistoryFile, Stretch
from magnetar.tiered.parquet.api import SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

TOPIC = TopicName.parse("persistent://public/default/orders")
COLUMNS = ("message_id", "value")
LEDGERS = range(3, 43)
ENTRIES = 5


def entries(ledger_id: int) -> list[bytes]:
    return [
        build_entry(
            pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1_700_000_000_000),
            b"%d/%d" % (ledger_id, number),
        )
        for number in range(ENTRIES)
    ]


def merged(folder: Path) -> HistoryFile:
    """A file of many ledgers."""
    parts = []
    for ledger_id in LEDGERS:
        path = folder / str(ledger_id)
        runs = [EntryRun(ledger_id, 0, entries(ledger_id), None, ledger_id * ENTRIES, 1_700_000_000_000)]
        write_segment(runs, SegmentOrigin(str(TOPIC), ledger_id), str(path))
        parts.append(LocalFile(str(path)))
    origin = SegmentOrigin(str(TOPIC), LEDGERS[0], merged=True)
    summary = merge_segments(parts, origin, str(folder / "merged"))
    for part in parts:
        part.close()
    return HistoryFile(folder.as_uri(), "merged", 0, ENTRIES - 1, summary.file_bytes)


def test_a_file_of_several_ledgers_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = merged(tmp_path)
    opened, groups = [], []
    opening, reading = history._open, history._LocalSegment.row_group

    def open_counted(file: HistoryFile) -> object:
        opened.append(file)
        return opening(file)

    def read_counted(segment: history._LocalSegment, group: int, columns: list[str]) -> pa.Table:
        groups.append(group)
        return reading(segment, group, columns)

    monkeypatch.setattr(history, "_open", open_counted)
    monkeypatch.setattr(history._LocalSegment, "row_group", read_counted)
    decoder = Decoder(TOPIC, COLUMNS)
    columns = SegmentColumns(TOPIC, COLUMNS, None, None)
    last = LastFile()
    for ledger_id in LEDGERS:
        first = 2 if ledger_id == LEDGERS[1] else 0
        stretch = Stretch((ledger_id, first), (ledger_id, ENTRIES), file)
        *batches, end = read_stretch(TOPIC, stretch, decoder, columns, last)
        assert end == Position(ledger_id, ENTRIES)
        found = [row for batch in batches if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]
        assert found == [
            {"message_id": f"{ledger_id}:{entry}:-1:-1", "value": b"%d/%d" % (ledger_id, entry)}
            for entry in range(first, ENTRIES)
        ]
    assert (len(opened), groups) == (1, [0])
