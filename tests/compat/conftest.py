"""What the stories with the official Python client share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pulsar
import pytest

from support.official import connect
from support.standalone import StandaloneProcess


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
