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
    """Has the Spark that this process starts find a Java, and its workers this Python.

    Raises NoJavaError.
    """
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _python_command(master)
    if master.startswith("local"):
        # Else Spark asks the network for this machine's name and may warn about what it hears.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _python_command(master: str) -> str:
    """This Python, as Spark can call it: on this machine by a script, see `worker_start`.

    Before Spark looks for Python data sources it asks a shell for the command, without quotes: a path
    with a space in it is not found, and then neither is the source. So the folder goes to the front of
    PATH, which Spark's JVM inherits, and the command is the bare name.
    """
    script = launcher(sys.executable, cache_dir(os.environ)) if master.startswith("local") else None
    if script is not None and not any(character.isspace() for character in str(script)):
        return str(script)
    if not any(character.isspace() for character in sys.executable):
        return sys.executable
    folder, name = os.path.split(sys.executable)
    os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")
    return name
