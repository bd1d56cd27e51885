"""Fixtures of whole stories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # xdist has no types

from support.order import longest_first

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
"""Files that take minutes."""
DIVIDED = ("test_documents_followed", "test_spark_masters", "test_demo", "test_pipelines")
"""Files whose tests start processes of their own and share nothing: any worker takes the next of them."""


class ByFileOrTest(LoadFileScheduling):  # type: ignore[misc]  # nor this base
    """Gives out whole files, and those of DIVIDED test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return nodeid if Path(file).stem in DIVIDED else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileOrTest:
    """How xdist gives tests to workers: its hook."""
    return ByFileOrTest(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hands the longest files out first."""
    longest_first(items, HERE, LONGEST_FIRST)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of this process."""
    # Imported here: the demo's tests start programs of their own and need no Spark in this one.
    from support.spark_topics import spark_session

    return spark_session()
