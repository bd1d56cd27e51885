"""What tools ask besides rows: the columns of each answer are those that Flight SQL names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from magnetar.sql.serving.flight_tables import facts_table, names_table, sql_facts

FACTS = sql_facts("DuckDB 2", "0.1.0")
COLUMNS = {
    "sql_info": ["info_name", "value"],
    "table_types": ["table_type"],
    "primary_keys": [
        *("catalog_name", "db_schema_name", "table_name", "column_name", "key_name", "key_sequence"),
    ],
    "foreign_keys": [
        *("pk_catalog_name", "pk_db_schema_name", "pk_table_name", "pk_column_name"),
        *("fk_catalog_name", "fk_db_schema_name", "fk_table_name", "fk_column_name"),
        *("key_sequence", "fk_key_name", "pk_key_name", "update_rule", "delete_rule"),
    ],
    "type_info": [
        *("type_name", "data_type", "column_size", "literal_prefix", "literal_suffix", "create_params"),
        *("nullable", "case_sensitive", "searchable", "unsigned_attribute", "fixed_prec_scale"),
        *("auto_increment", "local_type_name", "minimum_scale", "maximum_scale", "sql_data_type"),
        *("datetime_subcode", "num_prec_radix", "interval_precision"),
    ],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_are_those_of_the_protocol(kind: str) -> None:
    table = facts_table(kind, [], FACTS)
    assert table.column_names == COLUMNS[kind]
    table.validate(full=True)


def test_facts_have_their_numbers_and_kinds() -> None:
    table = facts_table("sql_info", [], FACTS)
    found = {row["info_name"]: row["value"] for row in table.to_pylist()}
    assert (found[0], found[3], found[8], found[508]) == ("Magnetar", True, 0, [])
    assert found.keys() == FACTS.keys()
    chosen = facts_table("sql_info", [504, 0, 99_999], FACTS).to_pylist()
    assert [(row["info_name"], row["value"]) for row in chosen] == [(504, '"'), (0, "Magnetar")]
    assert facts_table("sql_info", [99_999], FACTS).num_rows == 0


def test_types_by_their_number() -> None:
    (row,) = facts_table("type_info", [-5], FACTS).to_pylist()
    assert (row["type_name"], row["column_size"], row["num_prec_radix"]) == ("BIGINT", 19, 10)
    assert facts_table("type_info", [99], FACTS).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "row", "columns"),
    [
        ("catalogs", ["t"], ["catalog_name"]),
        ("schemas", ["t", "n"], ["catalog_name", "db_schema_name"]),
        ("tables", ["t", "n", "o"], ["catalog_name", "db_schema_name", "table_name", "table_type"]),
    ],
)
def test_names(kind: str, row: list[str], columns: list[str]) -> None:
    expected = dict(zip(columns, [*row, "TABLE"], strict=False))
    assert names_table(kind, [row], None).to_pylist() == [expected]
    empty = names_table(kind, [], None)
    assert (empty.num_rows, empty.column_names) == (0, columns)


def test_tables_with_their_columns() -> None:
    shape = pa.schema([("item", pa.string())])
    asked = []

    def columns_of(row: object) -> pa.Schema:
        asked.append(row)
        return shape

    (row,) = names_table("tables", [["t", "n", "o"]], columns_of).to_pylist()
    assert pa.ipc.read_schema(pa.BufferReader(row["table_schema"])) == shape
    assert asked == [["t", "n", "o"]]
    assert "table_schema" in names_table("tables", [], columns_of).column_names
