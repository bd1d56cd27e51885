"""Breaks a rule of the product for a while: the simulator must notice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule, and what stands in its place when it is broken. The product itself has no switches."""

    rule: str
    replaced: Sequence[tuple[type | ModuleType, str, Any]]
    """Where, what, and what stands there: a method of the product, or one of the rules that the simulator
    hands to it (`rules.py`)."""
    found_by: int
    """A seed in which it is noticed; where the product has changed since, another one may be needed."""
    scenario: str = "ledgers"
    """In which kind of story it is."""

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The rule does not hold inside."""
        kept = [(owner, name, vars(owner)[name]) for owner, name, _ in self.replaced]
        for owner, name, replacement in self.replaced:
            setattr(owner, name, replacement)
        try:
            yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)
