"""Fixtures for every kind of test."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from support.standalone import StandaloneProcess  # needs the path above

# Generated cases are the same in every run, so that a failure is one of the change that it came with.
# `./dev test` goes through others as well, in a stage of their own that says its seed (tools/run_tests.py).
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None, database=None, print_blob=True)
settings.load_profile("same")


def pytest_collection_finish() -> None:
    """What was imported lives as long as the run: the garbage collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


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
