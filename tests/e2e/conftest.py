"""Fixtures of whole stories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of this process."""
    # Imported here: the demo's tests start programs of their own and need no Spark in this one.
    from support.spark_topics import spark_session

    return spark_session()
