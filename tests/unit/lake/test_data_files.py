"""Footers of history as tables read them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.io.pyarrow import PyArrowFileIO

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history.segment_writer import write_segment
from magnetar.lake.data_files import OpenedFile
from magnetar.lake.lake_values import FilesGoneError, LakeError, LakeFile
from magnetar.tiered.parquet.parquet_history import SegmentOrigin
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry


def written(folder: Path) -> Path:
    path = folder / "segment"
    entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")
    run = EntryRun(LedgerId(7), 0, [entry], [1], 0, 1_700_000_000_000)
    write_segment([run], SegmentOrigin("persistent://public/default/t", LedgerId(7)), str(path))
    return path


def opened(path: Path, size: int | None = None) -> OpenedFile:
    size = path.stat().st_size if size is None else size
    return OpenedFile(PyArrowFileIO(), LakeFile(path.as_uri(), size, LedgerId(7)))


def test_a_table_gets_what_was_checked_of_a_footer(tmp_path: Path) -> None:
    file = opened(written(tmp_path))
    assert file.described(0, 0).record_count == 1
    assert not file._footer.row_group(0).column(0).has_offset_index


def test_a_damaged_footer_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = bytearray(path.read_bytes())
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    whole[start + 1] ^= 0x7F
    path.write_bytes(whole)
    with pytest.raises(LakeError, match=r"segment cannot be read: .* its footer is damaged"):
        opened(path)


def test_a_file_that_is_gone_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FilesGoneError):
        opened(tmp_path / "none", 9)
