"""Filter expressions: `value.amount > 100 and key in ("a", "b")`; `base.expressions` has the notation.

| Name | Is |
|---|---|
| `value` | the decoded value; fields as `value.a.b` or `value["a"]` |
| `key`, `properties`, `id`, `topic`, `producer`, `index`, `sequence_id`, `size` | as in `-o json` |
| `publish_time`, `event_time`, `broker_time` | Unix milliseconds |
| `transaction`, `transaction_state` | with `consume --isolation read-uncommitted` |
| `age` | seconds since it was published |
| `matches(text, "regex")`, `contains(text, "part")`, `lower(text)`, `len(x)`, `time("2025-01-31")` | |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import click

from magnetar.base.expressions import FUNCTIONS, ExpressionError, Notation, as_text
from magnetar.cli.times import Moment

NAMES: Final = frozenset(
    {
        "value", "key", "properties", "id", "topic", "producer", "index", "sequence_id", "size",
        "publish_time", "event_time", "broker_time", "age", "transaction", "transaction_state",
    }
)  # fmt: skip


def _time(text: str) -> object:
    try:
        return Moment().convert(text, None, None)
    except click.UsageError as error:
        raise ExpressionError(error.message) from error


_NOTATION: Final = Notation(
    NAMES,
    {
        "matches": lambda text, pattern: re.search(pattern, as_text(text)) is not None,
        **FUNCTIONS,
        "time": _time,
    },
)


def compiled(text: str) -> Callable[[Mapping[str, object]], bool]:
    """Compiles a filter to a test of a message's names (listed above). Raises ExpressionError."""
    return _NOTATION.compiled(text)
