"""What the stories with the official Python client share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from support.official import connect
from support.order import longest_first
from support.standalone import StandaloneProcess

HERE = Path(__file__).parent
LONGEST_FIRST = (
    "test_damaged_store",
    "test_autorecovery",
    "test_bookies",
    "test_java_client",
    "test_tiered_storage",
    "test_broker",
    "test_command_line",
    "test_security",
    "test_pulsar_admin",
)
"""Files of more than a minute on a busy machine; the first has one test, which xdist would begin last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hands the longest files out first."""
    longest_first(items, HERE, LONGEST_FIRST)


@pytest.fixture
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    """An official client of the standalone that all tests share."""
    made = connect(standalone)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"persistent://public/default/t-{uuid.uuid4().hex}"
