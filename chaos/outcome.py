"""What a run found: what the report is made of."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.history import Event, TopicHistory
from chaos.rules import Violation
from chaos.schedule import Fault


@dataclass(frozen=True)
class Outcome:
    """A run that is over."""

    began_s: float
    """By the clock of the history."""
    events: list[Event]
    topics: dict[str, TopicHistory]
    violations: list[Violation]
    done: list[tuple[float, float, Fault]]
    """When each fault was there, by the clock of the history, and which."""
    lives: dict[str, int]
    """How often each server was started."""
