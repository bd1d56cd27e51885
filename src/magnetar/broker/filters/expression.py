"""The filter `expression`: a subscription gets the entries for which its own expression holds.

The expression stands in the property `filter.expression` of the subscription; without it everything is sent.
`base.expressions` has the notation.

| Name | Is |
|---|---|
| `key` | the key as text; None without one |
| `properties` | of the message, texts: `properties.colour`, `properties["a-b"]` |
| `producer`, `sequence_id` | who sent it, as which |
| `publish_time`, `event_time` | Unix milliseconds; an event time of 0 is None |
| `size` | bytes of the payload as it is stored |
| `messages` | how many are in the entry |
| `number(text)`, `len(x)`, `lower(text)` | |
| `starts(text, "a")`, `ends(text, "z")`, `contains(text, "part")` | |

There are no regular expressions: one that backtracks would hold up all clients of the broker.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from magnetar.base.expressions import FUNCTIONS, ExpressionError, Notation, as_text
from magnetar.broker.filters.api import Candidate, Context, FilterError, Verdict

NAME: Final = "expression"
PROPERTY: Final = "filter.expression"
"""Of the subscription."""

_CHARS_MAX: Final = 2_000
"""Of an expression: it is evaluated for every entry, and written by a client."""

_NOTATION: Final = Notation(
    frozenset(
        {"key", "properties", "producer", "sequence_id", "publish_time", "event_time", "size", "messages"}
    ),
    {
        **FUNCTIONS,
        "number": float,
        "starts": lambda text, part: as_text(text).startswith(part),
        "ends": lambda text, part: as_text(text).endswith(part),
    },
)


def _names(candidate: Candidate) -> dict[str, Any]:
    metadata = candidate.metadata
    key: str | None = metadata.partition_key if metadata.HasField("partition_key") else None
    if key is not None and metadata.partition_key_b64_encoded:
        key = as_text(base64.b64decode(key))
    return {
        "key": key,
        "properties": {pair.key: pair.value for pair in metadata.properties},
        "producer": metadata.producer_name,
        "sequence_id": metadata.sequence_id,
        "publish_time": metadata.publish_time,
        "event_time": metadata.event_time or None,
        "size": len(candidate.payload),
        "messages": candidate.messages,
    }


class ExpressionFilter:
    """See the module."""

    def __init__(self, context: Context) -> None:
        """Raises FilterError when the property holds no expression."""
        text = context.properties.get(PROPERTY)
        self._holds = None
        if text is None:
            return
        if len(text) > _CHARS_MAX:
            raise FilterError(f"the property {PROPERTY} has more than {_CHARS_MAX} characters")
        try:
            self._holds = _NOTATION.compiled(text)
        except ExpressionError as error:
            raise FilterError(f"the property {PROPERTY}: {error}") from error

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """A verdict for each: ACCEPT or REJECT."""
        holds = self._holds
        if holds is None:
            return [Verdict.ACCEPT] * len(candidates)
        return [Verdict.ACCEPT if holds(_names(each)) else Verdict.REJECT for each in candidates]
