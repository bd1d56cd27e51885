"""Which filters are in force on a topic, from its policy, its namespace's and the broker's settings (pure).

The policy is Pulsar's: `{"entryFilterNames": "a,b"}`, in the documents of topics and of namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.broker.errors import PreconditionFailedError
from magnetar.broker.filters import expression
from magnetar.broker.filters.entry_filter import FilterFactory
from magnetar.broker.filters.work import TurnWork
from magnetar.broker.policies.policy_shapes import Document

FILTERS_POLICY: Final = "entryFilters"
"""Key of a topic's document and of a namespace's."""
FILTER_NAMES: Final = "entryFilterNames"
"""Part of that policy: names separated by commas, asked in this order."""

BUILT_IN: Final[Mapping[str, FilterFactory]] = {expression.NAME: expression.ExpressionFilter}


def names_in(text: str) -> tuple[str, ...]:
    """The names in a text that separates them by commas, each once."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The filters of a topic. Also: the broker's defaults."""

    names: tuple[str, ...] = ()
    """In the order of their calls; empty: every entry is sent."""
    known: Mapping[str, FilterFactory] = field(default_factory=lambda: BUILT_IN)
    """What there is to choose from."""
    override: bool = True
    """Whether policies may choose; if not, the broker's names hold everywhere."""
    budget_ms: int = 5
    """Milliseconds that a filter may take for a vector; a slower one is named in the log."""
    turn: TurnWork = field(default_factory=TurnWork, compare=False)
    """The turns of the broker: all that is made of these rules shares them."""

    def under(self, own: Document, namespace: Document) -> FilterRules:
        """The rules in force under the policies of a topic and of its namespace."""
        chosen = own.get(FILTERS_POLICY) or namespace.get(FILTERS_POLICY)
        if not chosen or not self.override:
            return self
        return replace(self, names=names_in(str(chosen.get(FILTER_NAMES) or "")))

    def check_choice(self, names: tuple[str, ...]) -> None:
        """Whether a policy may choose these. Raises PreconditionFailedError."""
        known = ", ".join(sorted(self.known))
        if not self.override:
            raise PreconditionFailedError(
                "this broker lets no policy choose entry filters (allowOverrideEntryFilters is false)"
            )
        if not names:
            raise PreconditionFailedError(f"{FILTER_NAMES} names no filter; there are {known}")
        for name in names:
            if name not in self.known:
                raise PreconditionFailedError(
                    f"there is no entry filter {name!r}; there are {known}"
                    " (Java classes cannot run here; Python classes are installed by the operator)"
                )
