"""In which order tests run, by chance or what takes longest first, and which of them run at night alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

SEED: Final = pytest.StashKey[int]()
"""In the configuration of every process of a run: all of them collect in the same order."""


ABOUT_SOURCES: Final = ("observability/test_catalogue.py",)
"""Files of unit tests that read syntax trees, beside those right below tests/unit and in tools."""


def is_about_sources(path: Path) -> bool:
    """Whether a file of unit tests reads the sources; `path`: below tests/unit."""
    return path.parent.as_posix() in (".", "tools") or path.as_posix() in ABOUT_SOURCES


def longest_first(items: list[pytest.Item], folder: Path, names: Sequence[str]) -> None:
    """Moves the tests of these files of a folder to the front, in the order of the names.

    What begins last decides when a stage ends. `./dev test` keeps xdist from changing the order.
    """
    rank = {name: place for place, name in enumerate(names)}
    items.sort(
        key=lambda item: rank.get(item.path.stem, len(rank)) if item.path.is_relative_to(folder) else 0
    )


def waits_for_the_night(item: pytest.Item) -> bool:
    """Whether a test, or one of its cases, runs with `--nightly` alone."""
    mark = item.get_closest_marker("nightly")
    if mark is None:
        return False
    assert mark.args, f"{item.nodeid}: the mark says what runs by day in its place"
    return item.get_closest_marker("every_run") is None
