"""Which messages a query can want, by time, key and position. Pure.

Bounds are wide: they never exclude a row that the query keeps. The engine applies the conditions themselves
once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from magnetar.arrow.row_filter import RowFilter
from magnetar.sql.engine_tree import Node

TIME: Final = "publish_time"
KEY: Final = "key"
NUMBERS: Final = ("partition", "ledger_id", "entry_id")
BOUNDED: Final = frozenset((TIME, KEY, *NUMBERS))
"""The columns whose conditions narrow what is read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with expressions that do not depend on a row."""

    column: str
    operator: str
    """One of `=`, `<`, `<=`, `>`, `>=`, and `in`."""
    operands: tuple[Node, ...]
    """The engine's own form of the expressions."""


@dataclass(frozen=True, slots=True)
class NumberSpan:
    """Numbers from `low` to `high`, both included; None: no bound."""

    low: int | None = None
    high: int | None = None

    def and_(self, low: int | None, high: int | None) -> NumberSpan:
        """The numbers that are in both."""
        lows = [each for each in (self.low, low) if each is not None]
        highs = [each for each in (self.high, high) if each is not None]
        return NumberSpan(max(lows, default=None), min(highs, default=None))

    def meets(self, low: int, high: int) -> bool:
        """Whether a number from `low` to `high` is in it."""
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)


_ANY: Final = NumberSpan()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Conditions that must all hold."""

    time_ms: NumberSpan = _ANY
    """Publish time, Unix milliseconds."""
    keys: frozenset[bytes] | None = None
    """None: all."""
    partition: NumberSpan = _ANY
    ledger_id: NumberSpan = _ANY
    entry_id: NumberSpan = _ANY

    @property
    def rows(self) -> RowFilter | None:
        """The conditions for rows; None: there is none."""
        if self.keys is None and self.time_ms == _ANY:
            return None
        return RowFilter(
            published_from_ms=self.time_ms.low, published_until_ms=self.time_ms.high, keys=self.keys
        )

    def with_condition(self, column: str, operator: str, values: Sequence[int | bytes | None]) -> Bounds:
        """These and one more. `values`: the operands' values; a condition with None among them is left out,
        since it holds for no row or is not understood."""
        if any(value is None for value in values) or not values:
            return self
        if column == KEY:
            if operator not in ("=", "in"):
                return self
            keys = frozenset(value for value in values if isinstance(value, bytes))
            return replace(self, keys=keys if self.keys is None else self.keys & keys)
        numbers = [value for value in values if isinstance(value, int)]
        low = min(numbers) if operator in ("=", "in", ">", ">=") else None
        high = max(numbers) if operator in ("=", "in", "<", "<=") else None
        if column == TIME:
            return replace(self, time_ms=self.time_ms.and_(low, high))
        if column == "partition":
            return replace(self, partition=self.partition.and_(low, high))
        if column == "ledger_id":
            return replace(self, ledger_id=self.ledger_id.and_(low, high))
        return replace(self, entry_id=self.entry_id.and_(low, high))
