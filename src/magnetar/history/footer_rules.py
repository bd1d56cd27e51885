"""Checks a Parquet footer, whatever it is, and writes it again with nothing but what was checked (pure).

pyarrow trusts a footer. Some damage makes it raise an error where its Python classes expect none, which ends
the process: statistics that are shorter than their type, a histogram of another length, a schema that does
not end. So pyarrow gets no byte of a footer as it was stored; it gets what `rewritten` makes of it.

What holds of a footer that was written again:
- its records have the shapes of `footer_shapes.py`; texts are UTF-8; there is nothing else in it;
- the schema is one tree, with leaves that have a type, and not nested deeply;
- each row group has one chunk for each leaf, in that order, with its path and type;
- chunks lie between the beginning of the file and the footer, and do not begin within their own dictionary;
- a chunk of a column that is not repeated has as many values as the row group has rows, and rows add up;
- the smallest and the largest value have the length of their type; there are no more nulls than values;
- only what this project writes is kept beside the columns (`magnetar.…`).

Source: apache/parquet-format; docs/internals/history-format.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.history import footer_shapes as shapes
from magnetar.history.compact import CompactReader, Fields, ThriftError, Value

_KEPT_PREFIX: Final = b"magnetar."
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value in statistics, by its type: boolean, int32, int64, int96, float, double."""
_TEXTS, _FIXED = 6, 7
"""Types whose values have any length, and the length of the leaf."""
_REPEATED: Final = 2


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: list[bytes]
    type: int
    length: int
    repeated: bool
    """Whether it, or a column that holds it, may have several values in a row."""


def rewritten(footer: bytes, body_bytes: int) -> bytes:
    """The footer of a file whose footer begins at `body_bytes`, in Thrift's compact protocol, as the module
    says. Raises ThriftError.

    Costs about a millisecond for each row group of a segment.
    """
    source = CompactReader(footer)
    found = shapes.FOOTER.read_fields(source)
    if source.at != len(footer):
        raise ThriftError("it ends before its last byte")
    leaves = _leaves(_records(found, shapes.ELEMENTS))
    groups = _records(found, shapes.GROUPS)
    rows = 0
    for group in groups:
        _check_group(group, leaves, body_bytes)
        rows += _whole(group, shapes.GROUP_ROWS)
    if rows != _whole(found, shapes.ROWS):
        raise ThriftError(f"{rows} rows in row groups of a file of {_whole(found, shapes.ROWS)}")
    if shapes.ORDERS in found and len(_records(found, shapes.ORDERS)) != len(leaves):
        raise ThriftError("it has the orders of other columns")
    if shapes.KEPT_VALUES in found:
        kept = _records(found, shapes.KEPT_VALUES)
        found[shapes.KEPT_VALUES] = [
            each for each in kept if _octets(each, shapes.KEY).startswith(_KEPT_PREFIX)
        ]
    out = bytearray()
    shapes.FOOTER.write(found, out)
    return bytes(out)


# -- the schema --------------------------------------------------------------------------------------


def _leaves(elements: Sequence[Fields]) -> list[_Leaf]:
    """The leaves of the tree whose nodes these are, each before those below it. Raises ThriftError."""
    if not elements or not _whole(elements[0], shapes.CHILDREN):
        raise ThriftError("it has no columns")
    leaves = []
    open_groups = [(_whole(elements[0], shapes.CHILDREN), list[bytes](), False)]
    """Nodes that are not complete: children to come, path, and whether it is repeated."""
    for element in elements[1:]:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups:
            raise ThriftError("its schema goes on behind its end")
        left, above, repeated = open_groups[-1]
        open_groups[-1] = left - 1, above, repeated
        if shapes.REPETITION not in element:
            raise ThriftError("a column does not say how often it comes")
        repeated |= _whole(element, shapes.REPETITION) == _REPEATED
        path = [*above, _octets(element, shapes.NAME)]
        children = _whole(element, shapes.CHILDREN)
        if (shapes.TYPE in element) == bool(children):
            raise ThriftError("a column has a type and columns, or neither")
        if len(path) > shapes.NESTED_MAX:
            raise ThriftError(f"its columns are nested more than {shapes.NESTED_MAX} deep")
        if children:
            open_groups.append((children, path, repeated))
        else:
            kind, length = _whole(element, shapes.TYPE), _whole(element, shapes.LENGTH)
            if kind == _FIXED and not length:
                raise ThriftError("values of a fixed length have none")
            leaves.append(_Leaf(path, kind, length, repeated))
    if any(left for left, _, _ in open_groups):
        raise ThriftError("its schema is cut off")
    return leaves


# -- row groups --------------------------------------------------------------------------------------


def _check_group(group: Fields, leaves: Sequence[_Leaf], body_bytes: int) -> None:
    columns = _records(group, shapes.COLUMNS)
    if len(columns) != len(leaves):
        raise ThriftError(f"a row group has {len(columns)} columns of {len(leaves)}")
    rows = _whole(group, shapes.GROUP_ROWS)
    for column, leaf in zip(columns, leaves, strict=True):
        chunk = column[shapes.META]
        assert isinstance(chunk, dict)
        if chunk[shapes.PATH] != leaf.path or chunk[shapes.LEAF_TYPE] != leaf.type:
            raise ThriftError("a row group has other columns than the schema")
        _check_chunk(chunk, leaf, rows, body_bytes)


def _check_chunk(chunk: Fields, leaf: _Leaf, rows: int, body_bytes: int) -> None:
    values = _whole(chunk, shapes.VALUES)
    if values < rows or (values > rows and not leaf.repeated):
        raise ThriftError(f"{values} values in a column of {rows} rows")
    start = data_at = _whole(chunk, shapes.DATA_AT)
    if shapes.DICTIONARY_AT in chunk:
        start = _whole(chunk, shapes.DICTIONARY_AT)
        if start >= data_at:
            raise ThriftError("a dictionary lies behind the values that need it")
    end = start + _whole(chunk, shapes.BYTES)
    if start < _MAGIC_BYTES or not data_at <= end <= body_bytes:
        raise ThriftError("a column lies outside of the file")
    statistics = chunk.get(shapes.CHUNK_STATISTICS)
    if isinstance(statistics, dict):
        _check_statistics(statistics, leaf, values)


_MAGIC_BYTES: Final = 4


def _check_statistics(statistics: Fields, leaf: _Leaf, values: int) -> None:
    nulls = _whole(statistics, shapes.NULLS)
    if nulls > values or _whole(statistics, shapes.DISTINCT) > values:
        raise ThriftError(f"{nulls} nulls among {values} values")
    if leaf.type == _TEXTS:
        return
    width = leaf.length if leaf.type == _FIXED else _WIDTHS[leaf.type]
    for number in (shapes.SMALLEST, shapes.LARGEST):
        if number in statistics and len(_octets(statistics, number)) != width:
            raise ThriftError(f"a value of {width} bytes has another length in the statistics")


# -- fields ------------------------------------------------------------------------------------------


def _whole(fields: Mapping[int, Value], number: int) -> int:
    """A number; 0 when it is not there."""
    found = fields.get(number, 0)
    assert isinstance(found, int)
    return found


def _octets(fields: Mapping[int, Value], number: int) -> bytes:
    found = fields[number]
    assert isinstance(found, bytes)
    return found


def _records(fields: Mapping[int, Value], number: int) -> list[Fields]:
    found = fields[number]
    assert isinstance(found, list)
    return [each for each in found if isinstance(each, dict)]
