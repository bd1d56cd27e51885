"""What must hold of a footer before pyarrow gets it: each rule is broken once, in a footer that is right."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history import footer_shapes as shapes
from magnetar.history.compact import CompactReader, ThriftError
from magnetar.history.end import read_end
from magnetar.history.footer_rules import rewritten
from magnetar.history.segment_writer import write_segment
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, SegmentOrigin, StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

AVRO = (
    b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": {"type":'
    b' "record", "name": "I", "fields": [{"name": "b", "type": ["null", "long"]}]}}}, {"name": "d", "type":'
    b' {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}'
)


@cache
def _file() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        entry = build_entry(
            pb.MessageMetadata(
                producer_name="p",
                sequence_id=1,
                publish_time=1_700_000_000_000,
                properties=[pb.KeyValue(key="a", value="b"), pb.KeyValue(key="c", value="d")],
            ),
            b"x",
        )
        run = EntryRun(LedgerId(7), 0, [entry] * 3, [1] * 3, 0, 1_700_000_000_000)
        schema = StoredTopicSchema(bytes(8), pb.Schema.Avro, AVRO)
        write_segment([run], SegmentOrigin("persistent://public/default/t", LedgerId(7), [schema]), str(path))
        return path.read_bytes()


def _footer() -> tuple[bytes, int]:
    """A footer, and where it begins."""
    whole = _file()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    return whole[start:-8], start


Fields = Any
"""Fields by their numbers, nested: tests break them in ways that types forbid."""


def _broken(change: Callable[[Fields], object]) -> tuple[bytes, int]:
    footer, start = _footer()
    fields = deepcopy(shapes.FOOTER.read_fields(CompactReader(footer)))
    change(fields)
    out = bytearray()
    shapes.FOOTER.write(fields, out)
    return bytes(out), start


def _chunk(fields: Fields, leaf: int = 0) -> Fields:
    return fields[shapes.GROUPS][0][shapes.COLUMNS][leaf][shapes.META]


def _leaf_of(kind: int, fields: Fields, *, told: bool = True) -> int:
    """The number of a column whose values are of a type, and have statistics."""
    for number, column in enumerate(fields[shapes.GROUPS][0][shapes.COLUMNS]):
        chunk = column[shapes.META]
        known = chunk.get(shapes.CHUNK_STATISTICS, {})
        if chunk[shapes.LEAF_TYPE] == kind and (not told or shapes.SMALLEST in known):
            return number
    raise AssertionError(kind)


def _statistics(kind: int, fields: Fields) -> Fields:
    return _chunk(fields, _leaf_of(kind, fields))[shapes.CHUNK_STATISTICS]


def parsed(footer: bytes) -> pq.FileMetaData:
    whole = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(pa.BufferReader(whole))


def test_what_is_right_says_the_same_when_it_was_written_again() -> None:
    footer, start = _footer()
    again = rewritten(footer, start)
    assert rewritten(again, start) == again
    before, after = parsed(footer), parsed(again)
    assert after.schema.to_arrow_schema().equals(before.schema.to_arrow_schema(), check_metadata=True)
    assert (after.num_rows, after.num_row_groups, after.metadata) == (3, 1, before.metadata)
    for number in range(before.num_columns):
        one, other = before.row_group(0).column(number), after.row_group(0).column(number)
        assert (one.file_offset, one.data_page_offset, one.total_compressed_size, one.compression) == (
            other.file_offset,
            other.data_page_offset,
            other.total_compressed_size,
            other.compression,
        )
        assert one.statistics == other.statistics


def test_what_is_not_read_is_left_out() -> None:
    """Histograms of sizes among it: pyarrow ends the process when one has a wrong length."""
    footer, start = _footer()
    group = parsed(rewritten(footer, start)).row_group(0)
    assert not any(group.column(number).has_offset_index for number in range(group.num_columns))
    assert len(rewritten(footer, start)) < len(footer)


def set_at(path: tuple[int, ...], value: object) -> Callable[[Fields], None]:
    def change(fields: Fields) -> None:
        for step in path[:-1]:
            fields = fields[step]
        fields[path[-1]] = value

    return change


GROUP, ELEMENTS = (shapes.GROUPS, 0), (shapes.ELEMENTS,)
CHUNK = (*GROUP, shapes.COLUMNS, 0, shapes.META)

RULES: dict[str, tuple[Callable[[Fields], object], str]] = {
    "rows add up": (set_at((shapes.ROWS,), 4), "rows in row groups"),
    "orders": (lambda f: f[shapes.ORDERS].pop(), "orders of other columns"),
    "no columns": (set_at((*ELEMENTS, 0, shapes.CHILDREN), 0), "no columns"),
    "the schema ends": (set_at((*ELEMENTS, 0, shapes.CHILDREN), 1), "behind its end"),
    "the schema is whole": (set_at((*ELEMENTS, 0, shapes.CHILDREN), 60), "cut off"),
    "a group has columns": (set_at((*ELEMENTS, 1, shapes.CHILDREN), 1), "a type and columns"),
    "a leaf has a type": (lambda f: f[shapes.ELEMENTS][1].pop(shapes.TYPE), "or neither"),
    "how often": (lambda f: f[shapes.ELEMENTS][1].pop(shapes.REPETITION), "how often"),
    "fixed lengths": (
        lambda f: (f[shapes.ELEMENTS][1].update({shapes.TYPE: 7}), _chunk(f).update({shapes.LEAF_TYPE: 7})),
        "fixed length have none",
    ),
    "all columns": (lambda f: f[shapes.GROUPS][0][shapes.COLUMNS].pop(), "columns of"),
    "paths": (set_at((*CHUNK, shapes.PATH), [b"other"]), "other columns than the schema"),
    "types": (set_at((*CHUNK, shapes.LEAF_TYPE), 6), "other columns than the schema"),
    "more values than rows": (set_at((*CHUNK, shapes.VALUES), 4), "values in a column"),
    "fewer values than rows": (set_at((*CHUNK, shapes.VALUES), 2), "values in a column"),
    "before the file": (set_at((*CHUNK, shapes.DATA_AT), 3), "outside of the file"),
    "behind the file": (set_at((*CHUNK, shapes.BYTES), 1 << 40), "outside of the file"),
    "into the footer": (lambda f: _chunk(f).update({shapes.BYTES: _footer()[1]}), "outside of the file"),
    "dictionaries first": (
        lambda f: _chunk(f).update({shapes.DICTIONARY_AT: _chunk(f)[shapes.DATA_AT]}),
        "behind the values",
    ),
    "nulls": (lambda f: _statistics(2, f).update({shapes.NULLS: 4}), "nulls among"),
    "distinct": (lambda f: _statistics(2, f).update({shapes.DISTINCT: 4}), "nulls among"),
    "a short number": (lambda f: _statistics(2, f).update({shapes.SMALLEST: b"abc"}), "another length"),
    "a long number": (lambda f: _statistics(1, f).update({shapes.LARGEST: bytes(8)}), "another length"),
    "an empty flag": (lambda f: _statistics(0, f).update({shapes.LARGEST: b""}), "another length"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_footer_that_breaks_a_rule_is_refused(rule: str) -> None:
    change, reason = RULES[rule]
    with pytest.raises(ThriftError, match=reason):
        rewritten(*_broken(change))


def test_what_follows_the_footer_is_refused() -> None:
    footer, start = _footer()
    with pytest.raises(ThriftError, match="before its last byte"):
        rewritten(footer + b"\0", start)


def test_columns_are_not_nested_deeply() -> None:
    """A reader walks down them with a stack, which has an end."""

    def nest(fields: Fields) -> None:
        elements = fields[shapes.ELEMENTS]
        group = {shapes.NAME: b"n", shapes.CHILDREN: 1, shapes.REPETITION: 0}
        fields[shapes.ELEMENTS] = [elements[0], *[group] * shapes.NESTED_MAX, *elements[1:]]

    with pytest.raises(ThriftError, match="nested more than 128 deep"):
        rewritten(*_broken(nest))


def test_only_what_this_project_writes_is_kept_beside_the_columns() -> None:
    """An Arrow schema would be parsed by another reader."""

    def add(fields: Fields) -> None:
        fields[shapes.KEPT_VALUES].append({shapes.KEY: b"ARROW:schema", shapes.KEPT: b"/////w=="})

    footer, start = _broken(add)
    kept = parsed(rewritten(footer, start)).metadata
    assert kept is not None
    assert kept == parsed(_footer()[0]).metadata


class FileOf:
    """A file in memory."""

    name = "segment"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


def test_pyarrow_gets_what_was_written_again() -> None:
    """Its process would end for some of what was left out."""
    metadata = read_end(FileOf(_file())).metadata
    assert not metadata.row_group(0).column(0).has_offset_index
    assert parsed(_footer()[0]).row_group(0).column(0).has_offset_index


def test_a_footer_that_is_refused_is_told_by_its_file() -> None:
    footer, start = _broken(set_at((shapes.ROWS,), 4))
    damaged = _file()[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(DamagedSegmentError, match="segment: its footer is damaged: 3 rows in row groups"):
        read_end(FileOf(damaged))


def test_a_column_of_entries_with_another_type_is_damage() -> None:
    """Readers would work with it as with the type that it had."""

    def no_map(fields: Fields) -> None:
        properties = next(each for each in fields[shapes.ELEMENTS] if each[shapes.NAME] == b"properties")
        for kind in (6, 10):
            properties.pop(kind, None)

    footer, start = _broken(no_map)
    damaged = _file()[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(DamagedSegmentError, match="the column properties is struct"):
        read_end(FileOf(damaged))
