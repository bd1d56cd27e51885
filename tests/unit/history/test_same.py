"""Columns of one value are not read, and memory that is read to is used again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from magnetar.base.entries import EntryRun
from magnetar.history.columns import REBUILD_COLUMNS
from magnetar.history.files import LocalFile, PathSource, Room
from magnetar.history.reader import SegmentReader
from magnetar.history.same import same_columns
from magnetar.history.segment_writer import write_segment
from magnetar.tiered.parquet.parquet_history import SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.endings import closed_at_end

ORIGIN = SegmentOrigin("persistent://public/default/orders", 5)
TIME_MS = 1_700_000_000_000


def run_of(names: list[str]) -> EntryRun:
    entries = [
        build_entry(
            pb.MessageMetadata(producer_name=name, sequence_id=at, publish_time=TIME_MS), b"payload %d" % at
        )
        for at, name in enumerate(names)
    ]
    return EntryRun(5, 0, entries, None, 0, TIME_MS)


def test_columns_of_one_value(tmp_path: Path) -> None:
    write_segment([run_of(["p", "p"])], ORIGIN, str(tmp_path / "one"))
    write_segment([run_of(["p", "q"])], ORIGIN, str(tmp_path / "two"))
    found = []
    for name in ("one", "two"):
        reader = SegmentReader(closed_at_end(LocalFile(str(tmp_path / name))))
        leaves = {column: [at] for at, column in enumerate(reader.metadata.schema.names)}
        found.append(same_columns(reader.metadata.row_group(0), leaves, REBUILD_COLUMNS))
    one, two = found
    assert one["producer_name"] == pa.scalar("p")
    assert one["key"] == pa.scalar(None, pa.binary())
    assert set(one) - set(two) == {"producer_name"}
    assert not {"payload", "sequence_id"} & set(one)


def test_readers_in_turn_have_one_room(tmp_path: Path) -> None:
    """What one has read does not change when the next one reads."""
    room = Room()
    runs = [run_of(["p", "q"]), run_of(["another one"])]
    read = []
    for at, run in enumerate(runs):
        path = tmp_path / str(at)
        write_segment([run], ORIGIN, str(path))
        reader = SegmentReader(PathSource(str(path), path.name, path.stat().st_size), room)
        read.append(reader.entries(5, 0, 1 << 20))
    assert [found[0].entries for found in read] == [run.entries for run in runs]
