"""Fixtures for every kind of test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from support.standalone import StandaloneProcess  # needs the path above

# Generated cases are the same in every run, so that a failure is one of the change that it came with.
# MAGNETAR_TEST_RANDOM=1 looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("MAGNETAR_TEST_RANDOM") else "same")


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A durable standalone that all tests of a run share; use topic names of your own."""
    with StandaloneProcess(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture
def standalone_folder(tmp_path: Path) -> Iterator[StandaloneProcess]:
    """A standalone of the test's own, not started yet; killed at the end."""
    process = StandaloneProcess(tmp_path / "standalone")
    try:
        yield process
    finally:
        process.kill()
