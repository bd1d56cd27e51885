"""Passages of instances, closed behind each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.passages import Make, PassageBed


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    beds: list[PassageBed] = []

    def made(code: str, **fields: object) -> PassageBed:
        beds.append(PassageBed(tmp_path, code, **fields))  # type: ignore[arg-type]  # as the test says
        return beds[-1]

    yield made
    for bed in beds:
        bed.close()
