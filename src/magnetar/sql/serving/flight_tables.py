"""What tools ask of Flight SQL besides rows of statements, as tables of Arrow: names, types and abilities.

Source: Arrow's FlightSql.proto, which gives the columns of each answer and the numbers of facts; ODBC's
numbers of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from magnetar.sql.serving.flight_data import schema_message

ColumnsOf = Callable[[Sequence[str]], pa.Schema]
"""The columns of a table: of tenant, namespace and topic."""

_Column = tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]
_TEXT: Final = pa.string()


def _schema(*columns: _Column) -> pa.Schema:
    """Columns that may be null have a third part."""
    return pa.schema([pa.field(each[0], each[1], nullable=len(each) > 2) for each in columns])


_CATALOG: Final = ("catalog_name", _TEXT, True)
_KEYS: Final = _schema(
    _CATALOG,
    ("db_schema_name", _TEXT, True),
    ("table_name", _TEXT),
    ("column_name", _TEXT),
    ("key_name", _TEXT, True),
    ("key_sequence", pa.int32()),
)
_FOREIGN_KEYS: Final = _schema(
    ("pk_catalog_name", _TEXT, True),
    ("pk_db_schema_name", _TEXT, True),
    ("pk_table_name", _TEXT),
    ("pk_column_name", _TEXT),
    ("fk_catalog_name", _TEXT, True),
    ("fk_db_schema_name", _TEXT, True),
    ("fk_table_name", _TEXT),
    ("fk_column_name", _TEXT),
    ("key_sequence", pa.int32()),
    ("fk_key_name", _TEXT, True),
    ("pk_key_name", _TEXT, True),
    ("update_rule", pa.uint8()),
    ("delete_rule", pa.uint8()),
)
_TYPES: Final = _schema(
    ("type_name", _TEXT),
    ("data_type", pa.int32()),
    ("column_size", pa.int32(), True),
    ("literal_prefix", _TEXT, True),
    ("literal_suffix", _TEXT, True),
    ("create_params", pa.list_(pa.field("item", _TEXT, nullable=False)), True),
    ("nullable", pa.int32()),
    ("case_sensitive", pa.bool_()),
    ("searchable", pa.int32()),
    ("unsigned_attribute", pa.bool_(), True),
    ("fixed_prec_scale", pa.bool_()),
    ("auto_increment", pa.bool_(), True),
    ("local_type_name", _TEXT, True),
    ("minimum_scale", pa.int32(), True),
    ("maximum_scale", pa.int32(), True),
    ("sql_data_type", pa.int32()),
    ("datetime_subcode", pa.int32(), True),
    ("num_prec_radix", pa.int32(), True),
    ("interval_precision", pa.int32(), True),
)
# Name, number of ODBC, size in digits or characters, quotes around a literal.
_KINDS: Final = (
    ("VARCHAR", 12, None, "'"),
    ("BOOLEAN", -7, 1, None),
    ("TINYINT", -6, 3, None),
    ("BIGINT", -5, 19, None),
    ("BLOB", -3, None, "'"),
    ("DECIMAL", 3, 38, None),
    ("INTEGER", 4, 10, None),
    ("SMALLINT", 5, 5, None),
    ("FLOAT", 7, 7, None),
    ("DOUBLE", 8, 15, None),
    ("DATE", 91, 10, "'"),
    ("TIME", 92, 15, "'"),
    ("TIMESTAMP", 93, 26, "'"),
)
_NULLABLE, _SEARCHABLE = 1, 3

_VALUES: Final = pa.dense_union(
    [
        pa.field("string_value", _TEXT),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(_TEXT)),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_INFO: Final = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _VALUES, nullable=False)]
)
_BITS: Final = 3
"""Facts that are sets have their bits in an int32; other numbers are int64."""


def sql_facts(engine: str, version: str) -> dict[int, tuple[int, object]]:
    """Facts by their number: the child of the union, and the value."""
    facts: dict[int, object] = {
        0: "Magnetar",
        1: version,
        2: pa.__version__,
        3: True,  # Read only.
        4: True,  # SQL.
        5: False,  # Substrait.
        8: 0,  # Transactions: none.
        9: False,  # Cancel: a client leaves its call.
        10: False,  # Bulk ingestion.
        100: 0,  # Timeout of a statement: the broker's.
        500: False,  # CREATE CATALOG, SCHEMA, TABLE.
        501: False,
        502: False,
        503: 3,  # Identifiers: their case is kept, and does not count.
        504: '"',
        505: 3,
        506: True,  # Every row of a table can be selected.
        507: 1,  # Nulls are sorted last.
        508: [],  # Keywords beside those of the standard.
        513: "\\",
        514: "",
        515: True,  # Aliases.
        516: True,
        530: "namespace",
        531: "tenant",
        532: "topic",
        535: 1,  # Catalogs in names of SELECT.
        540: True,  # Sub-queries that name columns around them.
        542: 0,
        563: False,
        564: 0,  # No isolation of transactions.
        565: False,
    }
    bits = frozenset((535, 542))
    made: dict[int, tuple[int, object]] = {}
    for number, value in facts.items():
        if isinstance(value, bool):
            made[number] = (1, value)
        elif isinstance(value, str):
            made[number] = (0, value)
        elif isinstance(value, list):
            made[number] = (4, value)
        else:
            made[number] = (_BITS if number in bits else 2, value)
    made[533] = (0, engine)
    return made


def facts_table(kind: str, ids: Sequence[int], facts: Mapping[int, tuple[int, object]]) -> pa.Table:
    """What needs no topics. `kind`: `sql_info`, `type_info`, `table_types`, `primary_keys` or
    `foreign_keys`."""
    if kind == "table_types":
        return pa.table({"table_type": ["TABLE"]}, schema=_schema(("table_type", _TEXT)))
    if kind == "type_info":
        return pa.Table.from_pylist(
            [_type(*each) for each in _KINDS if not ids or each[1] in ids], schema=_TYPES
        )
    if kind == "sql_info":
        return _info([number for number in (ids or sorted(facts)) if number in facts], facts)
    assert kind in ("primary_keys", "foreign_keys"), kind
    return (_KEYS if kind == "primary_keys" else _FOREIGN_KEYS).empty_table()


def _type(name: str, number: int, size: int | None, quote: str | None) -> dict[str, object]:
    is_number = number in (-6, -5, 3, 4, 5, 7, 8)
    return {
        "type_name": name,
        "data_type": number,
        "column_size": size,
        "literal_prefix": quote,
        "literal_suffix": quote,
        "nullable": _NULLABLE,
        "case_sensitive": number == 12,
        "searchable": _SEARCHABLE,
        "unsigned_attribute": False if is_number else None,
        "fixed_prec_scale": False,
        "auto_increment": False,
        "local_type_name": name,
        "sql_data_type": number,
        "num_prec_radix": 10 if is_number else None,
    }


def _info(numbers: Sequence[int], facts: Mapping[int, tuple[int, object]]) -> pa.Table:
    children: list[list[object]] = [[] for _ in range(_VALUES.num_fields)]
    offsets = []
    for number in numbers:
        child, value = facts[number]
        offsets.append(len(children[child]))
        children[child].append(value)
    arrays = [pa.array(values, _VALUES.field(place).type) for place, values in enumerate(children)]
    union = pa.UnionArray.from_dense(
        pa.array([facts[number][0] for number in numbers], pa.int8()),
        pa.array(offsets, pa.int32()),
        arrays,
        [_VALUES.field(place).name for place in range(_VALUES.num_fields)],
    )
    return pa.Table.from_arrays([pa.array(numbers, pa.uint32()), union], schema=_INFO)


def names_table(kind: str, rows: Iterable[Sequence[str]], columns_of: ColumnsOf | None) -> pa.Table:
    """Names of catalogs, schemas or tables. `columns_of`: gives the columns that tables are shown with;
    None: without."""
    columns: list[Sequence[object]] = list(zip(*rows, strict=True))
    if kind == "catalogs":
        return pa.table(columns or [()], schema=_schema(("catalog_name", _TEXT)))
    if kind == "schemas":
        return pa.table(columns or [(), ()], schema=_schema(_CATALOG, ("db_schema_name", _TEXT)))
    assert kind == "tables", kind
    shape: list[_Column] = [
        _CATALOG,
        ("db_schema_name", _TEXT, True),
        ("table_name", _TEXT),
        ("table_type", _TEXT),
    ]
    names: list[Sequence[object]] = columns or [(), (), ()]
    values: list[Sequence[object]] = [*names, ["TABLE"] * len(names[0])]
    if columns_of is not None:
        shape.append(("table_schema", pa.binary()))
        shown = zip(*names, strict=True)
        values.append([schema_message(columns_of([str(part) for part in row])) for row in shown])
    return pa.table(values, schema=_schema(*shape))
