"""Segments that leave out what readers of a log never get."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.history import end, layout
from magnetar.history.files import LocalFile
from magnetar.history.left_out import LeftOut, LeftOutBuilder
from magnetar.history.merging import merge_segments
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.history.verifying import verify_segment
from magnetar.tiered.parquet.parquet_history import (
    DamagedRowsError,
    DamagedSegmentError,
    HistoryError,
    SegmentOrigin,
)
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.payload import build_entry, entry_layout, parse_metadata
from support.endings import closed_at_end

ORIGIN = SegmentOrigin("persistent://public/default/t", 5)
TIME_MS = 1_700_000_000_000


def message(number: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=TIME_MS, partition_key=f"k{number}"
    )
    return build_entry(metadata, b"%d" % number)


def runs_of(kept: str, ledger_id: int = 5) -> list[EntryRun]:
    """A ledger of which an `x` stands for an entry that is left out, of two messages."""
    return [
        EntryRun(ledger_id, at, [LEFT_OUT if each == "x" else message(at)], None, 2 * at, TIME_MS + at)
        for at, each in enumerate(kept)
    ]


def written(folder: Path, kept: str, ledger_id: int = 5) -> LocalFile:
    path = folder / f"{ledger_id}"
    write_segment(runs_of(kept, ledger_id), SegmentOrigin(ORIGIN.topic, ledger_id), str(path))
    return closed_at_end(LocalFile(str(path)))


def entries_of(reader: SegmentReader, first: int = 0, ledger_id: int = 5) -> list[tuple[int, bytes]]:
    return [
        (run.first_entry + at, entry)
        for run in reader.entries(ledger_id, first, 1 << 20)
        for at, entry in enumerate(run.entries)
    ]


def test_what_stands_for_an_entry_is_a_marker_that_no_client_gets() -> None:
    _, start, stop = entry_layout(LEFT_OUT)
    assert stop == len(LEFT_OUT)
    assert parse_metadata(LEFT_OUT[start:stop]).HasField("marker_type")


def test_what_is_left_out_has_no_row_and_keeps_its_place(tmp_path: Path) -> None:
    source = written(tmp_path, "..xx.x")
    reader = SegmentReader(source)
    assert pq.read_table(source.name)["entry_id"].to_pylist() == [0, 1, 4]
    assert reader.metadata.metadata[layout.FORMAT_KEY.encode()] == b"3"
    assert (reader.summary.rows, reader.summary.messages, reader.summary.last_entry) == (3, 3, 5)
    kept = [(at, message(at)) for at in (0, 1, 4)]
    assert entries_of(reader) == [*kept[:2], (2, LEFT_OUT), (3, LEFT_OUT), kept[2]]
    assert entries_of(reader, 3) == [(3, LEFT_OUT)]
    assert entries_of(reader, 4) == [kept[2]]
    assert entries_of(reader, 5) == [(5, LEFT_OUT)]
    # Searches by index and by time go on to work.
    assert [run.base_index for run in reader.entries(5, 0, 1 << 20)] == [0, 2, 4, 8]
    assert reader.position_at(5, TIME_MS + 2) == 4
    assert reader.position_at(5, TIME_MS + 5) is None
    assert [found.entry_id for found in reader.lookup(b"k4", 9)] == [4]
    assert reader.lookup(b"k2", 9) == []
    with pytest.raises(DamagedSegmentError):
        reader.entries(5, 6, 1)


def test_a_ledger_of_nothing_else_has_no_rows(tmp_path: Path) -> None:
    source = written(tmp_path, "xxx")
    reader = SegmentReader(source)
    assert pq.read_table(source.name).num_rows == reader.metadata.num_row_groups == 0
    assert entries_of(reader, 1) == [(1, LEFT_OUT), (2, LEFT_OUT)]
    assert len(reader.entries(5, 0, 1)[0].entries) == 1
    assert reader.position_at(5, 0) is None
    assert reader.lookup(b"k", 1) == []
    reader.ahead(5, 0)
    assert verify_segment(reader, runs_of("xxx")) == 3


def test_merged_files_keep_the_places_of_all_their_ledgers(tmp_path: Path) -> None:
    parts = [written(tmp_path, kept, number) for number, kept in ((5, ".x."), (6, "xx"), (7, "x.x"))]
    path = tmp_path / "merged"
    merge_segments(parts, SegmentOrigin(ORIGIN.topic, 5, merged=True), str(path))
    merged = SegmentReader(closed_at_end(LocalFile(str(path))))
    assert entries_of(merged, 0, 6) == [(0, LEFT_OUT), (1, LEFT_OUT)]
    assert entries_of(merged, 0, 7) == [(0, LEFT_OUT)]
    assert entries_of(merged, 1, 7) == [(1, message(1))]
    table = pq.read_table(str(path))
    assert list(zip(table["ledger_id"].to_pylist(), table["entry_id"].to_pylist(), strict=True)) == [
        (5, 0),
        (5, 2),
        (7, 1),
    ]


def test_an_older_release_refuses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take what comes behind a gap for other entries."""
    source = written(tmp_path, ".x.")
    monkeypatch.setattr(end, "FORMAT_VERSION", 2)
    with pytest.raises(HistoryError, match="use the newer release"):
        SegmentReader(source).entries(5, 0, 1)


def test_a_file_that_leaves_nothing_out_stays_readable_for_older_releases(tmp_path: Path) -> None:
    reader = SegmentReader(written(tmp_path, "..."))
    assert reader.metadata.metadata[layout.FORMAT_KEY.encode()] == b"1"
    assert layout.LEFT_OUT_KEY.encode() not in reader.metadata.metadata


@pytest.mark.parametrize(("stored", "made"), [("...", ".x."), (".x.", "...")])
def test_a_copy_that_leaves_out_the_wrong_entries_is_noticed(tmp_path: Path, stored: str, made: str) -> None:
    with pytest.raises(DamagedSegmentError):
        verify_segment(SegmentReader(written(tmp_path, made)), runs_of(stored))


def test_rows_that_are_missing_are_damage_where_nothing_says_that_they_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeftOutBuilder, "finish", lambda builder: b"")
    with pytest.raises(DamagedRowsError, match="has not all entries"):
        SegmentReader(written(tmp_path, ".x.")).entries(5, 0, 1)


def test_damage_of_the_section_is_noticed() -> None:
    builder = LeftOutBuilder()
    assert builder.finish() == b""
    builder.taken(runs_of(".xx.x"))
    section = builder.finish()
    found = LeftOut.decode("s", section)
    assert [(gap.first_entry, gap.entries) for gap in found.between(5, 0, 9)] == [(1, 2), (4, 1)]
    assert found.gap_with(5, 3) is None
    assert found.gap_with(4, 1) is None
    for at in range(len(section)):
        damaged = bytearray(section)
        damaged[at] ^= 3
        with pytest.raises(DamagedSegmentError, match="fails its checksum"):
            LeftOut.decode("s", bytes(damaged))
    with pytest.raises(DamagedSegmentError):
        LeftOut.decode("s", section[:3])
    for data in (b"", b"noise", zlib.compress(bytes(41))):
        with pytest.raises(DamagedSegmentError, match="cannot be read"):
            LeftOut.decode("s", crc32c(data).to_bytes(4, "little") + data)


def test_one_flipped_bit_of_the_section_costs_nothing() -> None:
    """Without the section no entry of the whole segment could be read."""
    builder = LeftOutBuilder()
    builder.taken(runs_of(".xx.x"))
    section = builder.finish()
    right = LeftOut.decode("s", section).between(5, 0, 9)
    for bit in range(8 * len(section)):
        damaged = bytearray(section)
        damaged[bit // 8] ^= 1 << bit % 8
        assert LeftOut.decode("s", bytes(damaged)).between(5, 0, 9) == right


def test_many_gaps_cost_few_bytes() -> None:
    chance = np.random.default_rng(1)
    builder = LeftOutBuilder()
    for at in np.unique(chance.integers(0, 1 << 20, 10_000)).tolist():
        builder.taken([EntryRun(5, at, [LEFT_OUT], None, at, TIME_MS + at // 100)])
    assert len(builder.finish()) < 8 * 10_000
