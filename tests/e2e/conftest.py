"""Fixtures of whole stories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A story's JVM ends before the second compiler has paid for itself: the first alone takes a quarter less CPU.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of this process."""
    # Imported here: the demo's tests start programs of their own and need no Spark in this one.
    from support.spark_topics import spark_session

    return spark_session()
