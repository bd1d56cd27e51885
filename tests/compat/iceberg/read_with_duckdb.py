"""Reads a table with DuckDB and prints its rows as JSON. Run by the suite.

By its own reader of Iceberg where the extension can be had, which is not part of the package; otherwise by
SQL over the files that pyiceberg found. Arguments: place of the table's metadata, and `extension` or `arrow`.
"""

from __future__ import annotations

import json
import sys

import duckdb

place, how = sys.argv[1:]
if how == "extension":
    duckdb.sql("INSTALL iceberg")
    duckdb.sql("LOAD iceberg")
    source = f"iceberg_scan('{place.removeprefix('file://')}')"
else:
    from pyiceberg.table import StaticTable

    history = StaticTable.from_metadata(place).scan().to_arrow()
    source = "history"
rows = duckdb.sql(
    f"""SELECT partition, ledger_id, entry_id, batch_index, decode(key) AS key, value,
        epoch_ms(publish_time) AS publish_ms
    FROM {source}
    WHERE marker_type IS NULL AND NOT is_compacted_out AND raw_entry IS NULL
    ORDER BY partition, ledger_id, entry_id, batch_index"""
)
print("FOUND " + json.dumps({"rows": [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]}))
