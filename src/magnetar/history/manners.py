"""Ways to do the work on a segment: at once, or with priority for other work. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Manners(Protocol):
    """Runs the parts of the work. Each call raises the errors of its part."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Runs a part that takes some ten milliseconds of a core. It touches no file, so it may be suspended
        at any point."""

    def write(self, part: Callable[[], None]) -> None:
        """Runs a part that writes a small piece to the disk."""


class AtOnce:
    """Runs each part at once, for benchmarks, tests and tools."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Calls it."""
        return part()

    def write(self, part: Callable[[], None]) -> None:
        """Calls it."""
        part()
