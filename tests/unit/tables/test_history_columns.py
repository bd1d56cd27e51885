"""Rows of a file as columns: the same as decoding the entries that went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.arrow.decode import Decoder
from magnetar.arrow.json_values import JsonValues
from magnetar.arrow.row_filter import RowFilter
from magnetar.arrow.values import Values
from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.deliveries import EntryColumns
from magnetar.history.segment_writer import SegmentWriter
from magnetar.tables import history
from magnetar.tables.history_columns import SegmentColumns
from magnetar.tables.stretches import HistoryFile, Stretch
from magnetar.tiered.parquet.parquet_history import SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_batch, build_entry

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
ALL = (*COLUMN_TYPES, *EXTRA_TYPES)
ENTRIES = 40


def entry(number: int) -> tuple[bytes, int]:
    """An entry of its kind, and its messages: alone or in a batch, with and without all that there may be."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=10 * number, publish_time=1000 + number)
    if number % 10 == 9:
        metadata.marker_type = 10
        return build_entry(metadata, b"marker"), 1
    if number % 2:
        metadata.partition_key, metadata.event_time = f"k{number % 3}", 5000 + number
        metadata.properties.add(key="a", value=str(number))
        metadata.properties.add(key="a", value="again")
        metadata.null_value = number % 5 == 0
        metadata.schema_version, metadata.ordering_key = b"\x01", b"o"
        return build_entry(metadata, b"" if metadata.null_value else b'{"n": %d}' % number), 1
    singles = []
    for place in range(4):
        single = pb.SingleMessageMetadata(compacted_out=place == 2, null_value=place == 3)
        if place == 1:
            single.partition_key, single.partition_key_b64_encoded = "azE=", True
            single.properties.add(key="b", value="c")
        singles.append((single, b"" if place == 3 else b'{"n": %d}' % place))
    metadata.num_messages_in_batch = 4
    return build_entry(metadata, build_batch(singles)), 4


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[HistoryFile, EntryColumns]:
    """A file, and the entries in it as a broker sends them."""
    folder = tmp_path_factory.mktemp("segment")
    made = [entry(number) for number in range(ENTRIES)]
    columns, index = EntryColumns(), 100
    for number, (raw, count) in enumerate(made):
        index += count
        columns.add(7, number, raw, index - 1, 2000)
    writer = SegmentWriter(str(folder / "s.parquet"), SegmentOrigin(str(TOPIC), 7))
    writer.add([EntryRun(7, 0, [raw for raw, _ in made], [count for _, count in made], 100, 2000)])
    writer.finish()
    size = (folder / "s.parquet").stat().st_size
    return HistoryFile(folder.as_uri(), "s.parquet", 0, ENTRIES - 1, size), columns


def rows(found: Any) -> list[dict[str, Any]]:
    return [row for each in found if isinstance(each, pa.RecordBatch) for row in each.to_pylist()]


WANTED = (
    None,
    RowFilter(keys=frozenset((b"k1",))),
    RowFilter(published_from_ms=1007, published_until_ms=1020),
)


@pytest.mark.parametrize("values", [None, JsonValues(pa.struct([("n", pa.int64())]))])
@pytest.mark.parametrize("wanted", WANTED)
def test_columns_of_a_file_are_those_of_its_entries(
    written: tuple[HistoryFile, EntryColumns],
    values: Values | None,
    wanted: RowFilter | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, entries = written
    decoder = Decoder(TOPIC, ALL, values=values, rows=wanted)
    columns = SegmentColumns(TOPIC, ALL, values, wanted)
    monkeypatch.setattr(history, "_rebuilt", None)
    for first, stop in ((0, ENTRIES), (3, 8), (20, ENTRIES)):
        found = list(
            history.read_stretch(
                TOPIC, Stretch((7, first), (7, stop), file), decoder, columns, history.LastFile()
            )
        )
        assert rows(found) == rows(decoder.decode(entries.slice(first, stop)))
        assert [each.schema for each in found if isinstance(each, pa.RecordBatch)] in ([], [decoder.schema])
        assert found[-1] == Position(7, stop)


def test_no_columns_are_rows_too(written: tuple[HistoryFile, EntryColumns]) -> None:
    file, _ = written
    stretch = Stretch((7, 0), (7, ENTRIES), file)
    found = history.read_stretch(
        TOPIC, stretch, Decoder(TOPIC, ()), SegmentColumns(TOPIC, (), None, None), history.LastFile()
    )
    assert sum(each.num_rows for each in found if isinstance(each, pa.RecordBatch)) == 76


@pytest.mark.leaves("the last file of a reader stays open for the next stretch")
def test_a_file_that_is_none_says_so_and_gives_nothing(
    written: tuple[HistoryFile, EntryColumns], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s.parquet").write_bytes(b"PAR1 no file PAR1")
    for name in ("s.parquet", "gone.parquet"):
        stretch = Stretch((7, 0), (7, 5), HistoryFile(tmp_path.as_uri(), name, 0, 4, 17))
        found = history.read_stretch(
            TOPIC, stretch, Decoder(TOPIC, ALL), SegmentColumns(TOPIC, ALL, None, None), history.LastFile()
        )
        assert list(found) == []
        assert name in caplog.text
