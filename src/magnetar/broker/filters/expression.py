"""The filter `expression`: a subscription gets the entries for which its own expression holds.

The expression stands in the property `filter.expression` of the subscription; without it everything is sent.
`base.expressions` has the notation.

| Name | Is |
|---|---|
| `key` | the key as text; None without one |
| `properties` | of the message, texts: `properties.colour`, `properties["a-b"]` |
| `producer`, `sequence_id` | name of the producer, and its number of the message |
| `publish_time`, `event_time` | Unix milliseconds; an event time of 0 is None |
| `size` | bytes of the payload: as it is stored, of a message in a batch its own |
| `messages` | how many are in the entry |
| `number(text)`, `len(x)`, `lower(text)` | |
| `starts(text, "a")`, `ends(text, "z")`, `contains(text, "part")` | |

A batch is sent, as a whole, when the expression holds for any of its messages. What is rejected is
acknowledged for good: so a batch that cannot be opened (encrypted, damaged, large) is sent too.
So is one that says more of its messages than a long expression may be asked about.

There are no regular expressions: one that backtracks would never come to an end.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from magnetar.base.expressions import (
    FUNCTIONS,
    ExpressionError,
    Notation,
    as_text,
    contains,
    parts_of,
    walks_of,
)
from magnetar.broker.filters.entry_filter import (
    METADATA_BYTES_MAX,
    Candidate,
    Context,
    FilterError,
    Pacing,
    Verdict,
)
from magnetar.broker.filters.work import JudgingWork
from magnetar.wire import pulsar_pb2 as pb

NAME: Final = "expression"
PROPERTY: Final = "filter.expression"
"""The property of the subscription with its expression."""

_CHARS_MAX: Final = 2_000
"""Characters of an expression: it is evaluated for every message, and written by a client."""
_PARTS_MAX: Final = 200
"""Names, values, functions and operators of an expression: the steps that it takes."""
_NUMBER_CHARS_MAX: Final = 1_000
"""Characters of a text that may be a number."""
_STEP_BYTES_MAX: Final = 16 << 20
"""Parts of the expression times bytes of a batch's metadata: some milliseconds, even when every part searches
texts that are made to be slow."""

_NOTATION: Final = Notation(
    frozenset(
        {"key", "properties", "producer", "sequence_id", "publish_time", "event_time", "size", "messages"}
    ),
    {
        **FUNCTIONS,
        "number": lambda text: _number(text),
        "starts": lambda text, part: as_text(text).startswith(part),
        "ends": lambda text, part: as_text(text).endswith(part),
    },
)


def _number(value: object) -> float:
    if not isinstance(value, str | int | float) or (
        isinstance(value, str) and len(value) > _NUMBER_CHARS_MAX
    ):
        raise ValueError
    return float(value)


def _key(metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> str | None:
    if not metadata.HasField("partition_key"):
        return None
    key = metadata.partition_key
    if metadata.partition_key_b64_encoded:
        try:
            return as_text(base64.b64decode(key))
        except ValueError:
            pass  # no base64: a producer's mistake, which must not hold up a subscription
    return as_text(key)


def _names(candidate: Candidate) -> dict[str, object]:
    metadata = candidate.metadata
    return {
        "key": _key(metadata),
        "properties": {pair.key: pair.value for pair in metadata.properties},
        "producer": metadata.producer_name,
        "sequence_id": metadata.sequence_id,
        "publish_time": metadata.publish_time,
        "event_time": metadata.event_time or None,
        "size": len(candidate.payload),
        "messages": candidate.messages,
    }


def _names_of_single(candidate: Candidate, single: pb.SingleMessageMetadata, size: int) -> dict[str, object]:
    batch = candidate.metadata
    return {
        "key": _key(single),
        "properties": {pair.key: pair.value for pair in single.properties},
        "producer": batch.producer_name,
        "sequence_id": single.sequence_id if single.HasField("sequence_id") else batch.sequence_id,
        "publish_time": batch.publish_time,
        "event_time": single.event_time or None,
        "size": size,
        "messages": candidate.messages,
    }


class ExpressionFilter:
    """See the module, and `PacedFilter`."""

    def __init__(self, context: Context) -> None:
        """Raises FilterError when the property holds no expression."""
        text = context.properties.get(PROPERTY)
        self._holds = None
        self._said_bytes_max = 0
        self._work = JudgingWork(0, 0)
        self._pace: Pacing | None = None
        if text is None:
            return
        if len(text) > _CHARS_MAX:
            raise FilterError(f"the property {PROPERTY} has more than {_CHARS_MAX} characters")
        notation = Notation(
            _NOTATION.names,
            {**_NOTATION.functions, "contains": lambda whole, part: contains(whole, part, self._step)},
            self._step,
        )
        try:
            self._holds = notation.compiled(text, _PARTS_MAX)
            self._work = JudgingWork(parts := parts_of(text), walks_of(text))
            self._said_bytes_max = _STEP_BYTES_MAX // parts
        except ExpressionError as error:
            raise FilterError(f"the property {PROPERTY}: {error}") from error

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """A verdict for each: ACCEPT or REJECT."""
        if self._holds is None:
            return [Verdict.ACCEPT] * len(candidates)
        return [Verdict.ACCEPT if self._wanted(each) else Verdict.REJECT for each in candidates]

    def work_us(self, candidate: Candidate) -> float:
        """See `PacedFilter`."""
        return 0.0 if self._holds is None else self._work.of(candidate)

    def judge_paced(self, candidate: Candidate, pace: Pacing) -> Verdict:
        """See `PacedFilter`."""
        self._pace = pace
        try:
            return self.judge([candidate])[0]
        finally:
            self._pace = None

    def _step(self) -> None:
        if self._pace is not None:
            self._pace.step()

    def _wanted(self, candidate: Candidate) -> bool:
        """Whether any message of the entry may match: an entry that cannot be examined may."""
        holds = self._holds
        assert holds is not None
        if candidate.metadata_bytes > METADATA_BYTES_MAX:
            return True
        if not candidate.is_batch:
            return holds(_names(candidate))
        singles = candidate.singles(self._step)
        if singles is None:
            return True
        said_bytes = candidate.opened_bytes - sum([len(payload) for _, payload in singles])
        return said_bytes > self._said_bytes_max or any(
            self._holds_of(candidate, single, len(payload))
            for single, payload in singles
            if not single.compacted_out
        )

    def _holds_of(self, candidate: Candidate, single: pb.SingleMessageMetadata, size: int) -> bool:
        assert self._holds is not None
        self._step()
        return self._holds(_names_of_single(candidate, single, size))
