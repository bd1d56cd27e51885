"""How a segment's work is done: at once, or so that others go first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Manners(Protocol):
    """Does the parts of the work. What a part raises is raised by the call."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Some ten milliseconds of a core; touches no file, so that it may be kept waiting anywhere."""

    def write(self, part: Callable[[], None]) -> None:
        """A small piece that goes to the disk."""


class AtOnce:
    """For processes that have the machine to themselves: bench, tests, tools."""

    def compute(self, part: Callable[[], Result]) -> Result:
        """Calls it."""
        return part()

    def write(self, part: Callable[[], None]) -> None:
        """Calls it."""
        part()
