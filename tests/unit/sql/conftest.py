"""One engine for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.sql.engine import SqlEngine
from magnetar.sql.limits import QueryLimits


@pytest.fixture
def engine() -> Iterator[SqlEngine]:
    made = SqlEngine(QueryLimits(memory_mb=64, threads=1))
    yield made
    made.close()
