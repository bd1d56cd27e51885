"""Reads a table with ClickHouse's Iceberg reader and prints its rows as JSON. Run by the suite.

Argument: the folder of the table.
"""

from __future__ import annotations

import json
import sys

import chdb

answer = chdb.query(
    f"""SELECT partition, ledger_id, entry_id, batch_index, key, value,
        toUnixTimestamp64Milli(publish_time) AS publish_ms
    FROM icebergLocal('{sys.argv[1]}')
    WHERE marker_type IS NULL AND NOT is_compacted_out AND raw_entry IS NULL
    ORDER BY partition, ledger_id, entry_id, batch_index
    SETTINGS output_format_json_quote_64bit_integers = 0""",
    "JSONEachRow",
)
print("FOUND " + json.dumps({"rows": [json.loads(line) for line in str(answer).splitlines()]}))
