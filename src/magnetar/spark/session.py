"""A Spark session with defaults that suit one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from magnetar.spark.java import cache_dir, find_java_home
from magnetar.spark.worker_settings import settle
from magnetar.spark.worker_start import launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "WARN",
}
"""Settings for local masters: loopback only, no web page, times in UTC, few shuffle partitions."""


def session(
    app_name: str, *, master: str = "local[*]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts a session, or returns the existing one.

    Args:
        master: Spark's master URL.
        config: settings of Spark. They override LOCAL_DEFAULTS, which apply to local masters.

    Finds a Java. The workers run this Python, unless PYSPARK_PYTHON names another one.
    Raises NoJavaError.
    """
    prepare(master)
    from pyspark.sql import SparkSession

    settings = {**LOCAL_DEFAULTS, **(config or {})} if master.startswith("local") else dict(config or {})
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    settle(spark)
    return spark


def prepare(master: str) -> None:
    """Sets the environment so that Spark finds a Java, and its workers run this Python.

    Raises NoJavaError.
    """
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _python_command(master)
    if master.startswith("local"):
        # Otherwise, Spark looks this machine's name up, and may warn about the answer.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _python_command(master: str) -> str:
    """The command of this Python for Spark; on this machine, the script of `worker_start`.

    Spark passes the command to a shell without quotes before it looks for Python data sources. With a space
    in the path, it finds neither Python nor the source. Then this function puts the folder at the front of
    PATH, which Spark's JVM inherits, and returns only the name.
    """
    script = launcher(sys.executable, cache_dir(os.environ)) if master.startswith("local") else None
    if script is not None and not any(character.isspace() for character in str(script)):
        return str(script)
    if not any(character.isspace() for character in sys.executable):
        return sys.executable
    folder, name = os.path.split(sys.executable)
    os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")
    return name
