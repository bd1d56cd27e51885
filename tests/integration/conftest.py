"""In which order processes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.order import longest_first

HERE = Path(__file__).parent
LONGEST_FIRST = (
    "test_chaos",
    "test_many_brokers",
    "test_installed",
    "test_mutants",
    "test_lake",
    "test_backup",
    "test_sink_kills",
    "test_store_owner",
    "test_identity",
    "test_kill",
    "test_sink",
)
"""Files of more than a minute on a busy machine, some with one or two tests, which xdist would begin last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hands the longest files out first."""
    longest_first(items, HERE, LONGEST_FIRST)
