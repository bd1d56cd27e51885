"""What Spark writes into the environment of a source's workers, written before two threads do so at once.

Spark keeps one map of environment variables for each Python data source, and each query that starts a
program for it puts the same few names into it and copies it right after. Two queries that start together can
copy while the other one adds a name; the copy then fails, and the query with it: "Illegal size 5 of
collection, expected 6". With all names there from the beginning the map only changes values, which is safe.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("magnetar.spark")

SOURCE: Final = "magnetar"
SETTLED: Final = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Names that Spark's runners always set before they start a program, with values that they replace."""


def settle(spark: SparkSession) -> None:
    """Puts the names into the map of this session's source; with Spark Connect its server has the map.

    A Spark whose insides are others than expected is left as it is: two queries that start at the same moment
    may then fail as they did, and starting one again helps.
    """
    from py4j.protocol import Py4JError

    if not hasattr(spark, "_jsparkSession"):
        return
    try:
        variables = environment(spark)
        for name, value in SETTLED.items():
            variables.putIfAbsent(name, value)
    except Py4JError as error:
        # The docstring's case: two queries may fail as they begin, and beginning one again helps.
        _log.info("the environment of Spark's workers is left as it is: %s", error)


def environment(spark: SparkSession) -> Any:
    """Spark's map of environment variables of the source, a `java.util.Map`."""
    java: Any = spark._jsparkSession
    return java.sessionState().dataSourceManager().lookupDataSource(SOURCE).dataSourceCls().envVars()
