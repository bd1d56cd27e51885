"""Writes environment variables for a source's workers early, before two threads of Spark do so at once.

Spark keeps one map of environment variables for each Python data source. Each query that starts a program
for it puts the same few names into the map, and then copies it. When another query adds a name during the
copy, the copy and its query fail: "Illegal size 5 of collection, expected 6". When all names exist from the
beginning, queries only change values, which is safe.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_log = logging.getLogger("magnetar.spark")

SOURCE: Final = "magnetar"
SETTLED: Final = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""The names that Spark's runners set before they start a program; the runners replace these values."""


def settle(spark: SparkSession) -> None:
    """Puts the names into the map of this session's source. With Spark Connect, the map is in its server.

    A Spark with other internals stays unchanged. Then two queries that start at the same moment can still
    fail; start the failed one again.
    """
    from py4j.protocol import Py4JError

    if not hasattr(spark, "_jsparkSession"):
        return
    try:
        variables = environment(spark)
        for name, value in SETTLED.items():
            variables.putIfAbsent(name, value)
    except Py4JError as error:
        # As the docstring says: two queries may fail at their start, and a new start helps.
        _log.info("the environment of Spark's workers is left as it is: %s", error)


def environment(spark: SparkSession) -> JavaObject:
    """Spark's map of environment variables of the source, a `java.util.Map`."""
    java: JavaObject = spark._jsparkSession
    return java.sessionState().dataSourceManager().lookupDataSource(SOURCE).dataSourceCls().envVars()
