"""Files of history read for their columns: those of several ledgers are opened and read once."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.arrow.decode import Decoder
from magnetar.arrow.row_filter import RowFilter
from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.history import segment_writer as writing
from magnetar.history.files import LocalFile
from magnetar.history.merging import merge_segments
from magnetar.history.segment_writer import SegmentWriter, write_segment
from magnetar.tables import history
from magnetar.tables.history import LastFile, read_stretch
from magnetar.tables.history_columns import SegmentColumns
from magnetar.tables.stretches import HistoryFile, Stretch
from magnetar.tiered.footers import read_footer
from magnetar.tiered.parquet.parquet_history import SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.endings import closed_at_end

TOPIC = TopicName.parse("persistent://public/default/orders")
COLUMNS = ("message_id", "value")
LEDGERS = range(3, 43)
TIME_MS = 1_700_000_000_000
ENTRIES = 5


def entries(ledger_id: int) -> list[bytes]:
    return [
        build_entry(
            pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=TIME_MS),
            b"%d/%d" % (ledger_id, number),
        )
        for number in range(ENTRIES)
    ]


def merged(folder: Path) -> HistoryFile:
    """A file of many ledgers."""
    parts = []
    for ledger_id in LEDGERS:
        path = folder / str(ledger_id)
        runs = [EntryRun(ledger_id, 0, entries(ledger_id), None, ledger_id * ENTRIES, TIME_MS)]
        write_segment(runs, SegmentOrigin(str(TOPIC), ledger_id), str(path))
        parts.append(closed_at_end(LocalFile(str(path))))
    origin = SegmentOrigin(str(TOPIC), LEDGERS[0], merged=True)
    summary = merge_segments(parts, origin, str(folder / "merged"))
    for part in parts:
        part.close()
    return HistoryFile(folder.as_uri(), "merged", 0, ENTRIES - 1, summary.file_bytes)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Row groups that are read."""
    read: list[int] = []
    reading = history._LocalSegment.row_group

    def counted(segment: history._LocalSegment, group: int, columns: list[str]) -> pa.Table:
        read.append(group)
        return reading(segment, group, columns)

    monkeypatch.setattr(history._LocalSegment, "row_group", counted)
    return read


@pytest.mark.parametrize(
    ("wanted", "read", "rows"),
    [
        (RowFilter(keys=frozenset((b"17",))), [1], 1),
        (RowFilter(keys=frozenset((b"17", b"93"))), [1, 9], 2),
        (RowFilter(keys=frozenset((b"none",))), [], 0),
        (RowFilter(keys=frozenset()), [], 0),
        (RowFilter(published_from_ms=TIME_MS + 85), [8, 9], 15),
        (RowFilter(published_from_ms=TIME_MS + 30, published_until_ms=TIME_MS + 39), [3], 10),
        (RowFilter(published_until_ms=TIME_MS - 1), [], 0),
    ],
)
def test_only_row_groups_that_may_have_what_is_wanted_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: list[int],
    wanted: RowFilter,
    read: list[int],
    rows: int,
) -> None:
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(writing, "VECTOR_BYTES", 1)
    writer = SegmentWriter(str(tmp_path / "s"), SegmentOrigin(str(TOPIC), 7))
    for first in range(0, 100, 10):
        made = [
            build_entry(
                pb.MessageMetadata(
                    producer_name="p", sequence_id=at, publish_time=TIME_MS + at, partition_key=str(at)
                ),
                b"x",
            )
            for at in range(first, first + 10)
        ]
        monkeypatch.setattr(writing, "VECTOR_BYTES", sum(map(len, made)))
        writer.add([EntryRun(7, first, made, None, first, TIME_MS)])
    assert writer.finish().row_groups == 10
    file = HistoryFile(tmp_path.as_uri(), "s", 0, 99, (tmp_path / "s").stat().st_size)
    columns = SegmentColumns(TOPIC, COLUMNS, None, wanted)
    decoder = Decoder(TOPIC, COLUMNS, rows=wanted)
    *batches, end = read_stretch(TOPIC, Stretch((7, 0), (7, 100), file), decoder, columns, LastFile())
    assert end == Position(7, 100), "the broker is not asked for what was passed over"
    assert groups == read
    assert sum(batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch)) == rows


def test_a_file_of_several_ledgers_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: list[int]
) -> None:
    file = merged(tmp_path)
    opened = []
    opening = history._open

    def open_counted(file: HistoryFile) -> object:
        opened.append(file)
        return opening(file)

    monkeypatch.setattr(history, "_open", open_counted)
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


def read_whole(file: HistoryFile) -> tuple[int, Position | None]:
    """Rows of ledger 7 that are read of a file, and up to where."""
    columns = SegmentColumns(TOPIC, COLUMNS, None, None)
    stretch = Stretch((7, 0), (7, 1), file)
    found = list(read_stretch(TOPIC, stretch, Decoder(TOPIC, COLUMNS), columns, LastFile()))
    ends = [each for each in found if isinstance(each, Position)]
    return sum(each.num_rows for each in found if isinstance(each, pa.RecordBatch)), max(ends, default=None)


@pytest.mark.leaves("the last file of a reader stays open for the next stretch")
def test_a_damaged_page_of_a_file_of_this_machine_is_never_a_row(tmp_path: Path) -> None:
    """What zstd cannot compress has no checksum but the page's, and that was not looked at."""
    noise = random.Random(3).randbytes(5000)
    entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=TIME_MS), noise)
    path = tmp_path / "s"
    write_segment([EntryRun(7, 0, [entry], None, 0, TIME_MS)], SegmentOrigin(str(TOPIC), 7), str(path))
    data, footer = path.read_bytes(), read_footer(path)
    assert footer is not None
    file = HistoryFile(tmp_path.as_uri(), "s", 0, 0, len(data), footer)
    assert read_whole(file) == (1, Position(7, 1))
    at = data.index(noise[2000:2100])
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert read_whole(file) == (0, None), "the broker is asked, and knows what is lost"


def test_the_end_of_a_file_is_believed_only_when_it_is_what_was_written(tmp_path: Path) -> None:
    entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=TIME_MS), b"x")
    path = tmp_path / "s"
    write_segment([EntryRun(7, 0, [entry], None, 0, TIME_MS)], SegmentOrigin(str(TOPIC), 7), str(path))
    data, footer = path.read_bytes(), read_footer(path)
    assert footer is not None
    file = HistoryFile(tmp_path.as_uri(), "s", 0, 0, len(data), footer)
    chance = random.Random(4)
    for _ in range(30):
        at = len(data) - 8 - chance.randrange(8, footer.length)
        path.write_bytes(data[:at] + chance.randbytes(8) + data[at + 8 :])
        assert read_whole(file) == (0, None)
    path.write_bytes(data[:-1] + b"2")
    assert read_whole(file) == (1, Position(7, 1))


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.leaves("the last file of a reader stays open for the next stretch")
def test_entries_that_a_file_leaves_out_are_no_rows(tmp_path: Path, *, is_plain: bool) -> None:
    """Those of aborted transactions; a file that is not read by its columns has them put together too."""
    made = entries(7)
    if not is_plain:
        made[0] = b"no entry"
    runs = [
        EntryRun(7, number, [LEFT_OUT if number in (1, 2, 4) else entry], None, number, TIME_MS)
        for number, entry in enumerate(made)
    ]
    size = write_segment(runs, SegmentOrigin(str(TOPIC), 7), str(tmp_path / "s")).file_bytes
    file = HistoryFile(tmp_path.as_uri(), "s", 0, ENTRIES - 1, size)
    decoder, columns = Decoder(TOPIC, COLUMNS), SegmentColumns(TOPIC, COLUMNS, None, None)
    for first, found in ((0, [0, 3]), (1, [3]), (4, [])):
        if not is_plain and first == 0:
            continue
        *batches, end = read_stretch(
            TOPIC, Stretch((7, first), (7, ENTRIES), file), decoder, columns, LastFile()
        )
        assert end == Position(7, ENTRIES)
        rows = [row for batch in batches if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]
        assert [row["message_id"] for row in rows] == [f"7:{number}:-1:-1" for number in found]


def test_a_file_of_this_machine_is_opened_by_what_was_checked_of_its_footer(tmp_path: Path) -> None:
    """Arrow itself would trust what stands in the file, whether a checksum is known or not."""
    file = merged(tmp_path)
    segment = LastFile().open(file)
    assert not segment.metadata.row_group(0).column(0).has_offset_index
    path = tmp_path / file.name
    whole = bytearray(path.read_bytes())
    # The number of rows, right behind the list of columns, does not add up any more.
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    whole[start + 1] ^= 0x7F
    path.write_bytes(whole)
    assert history.traits_of(file) is None
