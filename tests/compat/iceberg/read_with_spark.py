"""Reads a table with Spark's own Iceberg reader and prints what it found as JSON. Run by the suite.

Arguments: the jars, the table, and the settings of the catalog `magnetar` as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

jars, table, settings = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.catalog.magnetar", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.magnetar.cache-enabled", "false")
)
for key, value in json.loads(settings).items():
    builder = builder.config(f"spark.sql.catalog.magnetar.{key}", value)
spark = builder.getOrCreate()
rows = spark.sql(
    f"""SELECT partition, ledger_id, entry_id, batch_index, CAST(key AS STRING) AS key, value,
        unix_millis(publish_time) AS publish_ms
    FROM magnetar.{table}
    WHERE marker_type IS NULL AND NOT is_compacted_out AND raw_entry IS NULL
    ORDER BY partition, ledger_id, entry_id, batch_index"""
)
found = {
    "rows": [row.asDict(recursive=True) for row in rows.collect()],
    "pruned": spark.sql(f"SELECT count(*) FROM magnetar.{table} WHERE partition = 1").first()[0],
    "filtered": spark.sql(f"SELECT count(*) FROM magnetar.{table} WHERE value.level >= 3").first()[0],
    "snapshots": spark.sql(f"SELECT * FROM magnetar.{table}.snapshots").count(),
    "files": spark.sql(f"SELECT * FROM magnetar.{table}.files").count(),
}
print("FOUND " + json.dumps(found))
