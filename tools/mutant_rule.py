"""A rule that the code keeps, and a mutant that breaks it: see mutate.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What the code must do, where it does it, and how to break that."""

    name: str
    why: str
    """What is lost without it."""
    file: str
    """Below src/magnetar."""
    old: str
    """Text that occurs there once."""
    new: str
    tests: tuple[str, ...]
    """Below tests: at least one of them fails with `new` in the place of `old`."""
