"""Fixtures of whole stories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent
LONGEST_FIRST = (
    "test_documents_followed",
    "test_spark_masters",
    "test_spark_kill",
    "test_demo",
    "test_spark_streams",
)
"""Files that take minutes: what begins last decides when the stage ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hands the longest files out first; `./dev test` keeps xdist from changing the order."""
    rank = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)) if item.path.parent == HERE else 0)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of this process."""
    # Imported here: the demo's tests start programs of their own and need no Spark in this one.
    from support.spark_topics import spark_session

    return spark_session()
