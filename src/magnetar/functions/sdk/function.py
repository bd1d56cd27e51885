"""Base classes of functions, and what they may return beside plain values.

Functions written for Pulsar import these names from `pulsar`; both work (see `official_names`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.functions.sdk.context import FunctionContext


class Function(ABC):
    """Base class of a function that is a class. A plain function or any class with `process` works too."""

    @abstractmethod
    def process(self, input: object, context: FunctionContext) -> object:  # noqa: A002  # Pulsar's name
        """Called with each message; the result is published unless it is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """A result with more than a value."""

    value: object
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    topic: str | None = None
    """Where it is published; None: the output topic."""
    event_time_ms: int = 0
    """Unix milliseconds; 0: none."""
