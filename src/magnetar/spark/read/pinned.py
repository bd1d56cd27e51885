"""The option `ranges`: the exact entries to read.

    {"persistent://public/default/orders-partition-0": [["12:0", "12:3400"], ["14:0", "15:7"]]}

Each range has its first entry, and the position behind its last entry, which exists. The list of a partition
may be empty: then only the schema of its topic is used for the type of the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from magnetar.base.ids import Position
from magnetar.spark.connection_options import topic_option
from magnetar.spark.errors import OptionError
from magnetar.spark.read.offsets import Offset

PinnedRanges: TypeAlias = tuple[tuple[str, tuple[tuple[Position, Position], ...]], ...]
"""The full names of partitions, each with its ranges, in order."""


def encode_ranges(ranges: Mapping[str, Sequence[tuple[Position, Position]]]) -> str:
    """The option's text."""
    return json.dumps(
        {topic: [[str(start), str(end)] for start, end in each] for topic, each in ranges.items()}
    )


def parse_ranges(text: str) -> PinnedRanges | None:
    """The inverse of `encode_ranges`; None without the option. Raises OptionError."""
    if not text:
        return None
    try:
        decoded = json.loads(text)
        if not isinstance(decoded, dict):
            raise TypeError
        return tuple(
            (topic_option("ranges", topic), tuple(_range(*each) for each in ranges))
            for topic, ranges in decoded.items()
        )
    except (ValueError, TypeError, AttributeError):
        raise OptionError(
            f'ranges={text!r}: expected JSON such as {{"orders": [["12:0", "12:3400"]]}}'
        ) from None


def _range(first: object, stop: object) -> tuple[Position, Position]:
    start, end = Offset.parse(str(first)).position, Offset.parse(str(stop)).position
    if start >= end:
        raise OptionError(f"ranges: {first} does not lie before {stop}")
    return start, end
