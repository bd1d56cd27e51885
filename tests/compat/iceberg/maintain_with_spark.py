"""Maintains a table with Spark's own procedures, as managed catalogs do, and prints what each said as JSON.

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
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.magnetar", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.magnetar.cache-enabled", "false")
)
for key, value in json.loads(settings).items():
    builder = builder.config(f"spark.sql.catalog.magnetar.{key}", value)
spark = builder.getOrCreate()


def said(statement: str) -> str:
    """What came of it: its first row, or its error."""
    try:
        row = spark.sql(statement).first()
    except Exception as error:  # noqa: BLE001  # what was refused is the answer
        return f"refused: {error}"[:500]
    return "done" if row is None else str(row.asDict())


LATER = "TIMESTAMP '2100-01-01 00:00:00'"
found = {
    "rewrite": said(
        f"CALL magnetar.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
    ),
    "expire": said(
        f"CALL magnetar.system.expire_snapshots(table => '{table}', older_than => {LATER}, retain_last => 1)"
    ),
    "orphans": said(f"CALL magnetar.system.remove_orphan_files(table => '{table}')"),
    "purge": said(f"DROP TABLE magnetar.{table} PURGE"),
}
print("FOUND " + json.dumps(found))
