"""Offsets: how far each partition of the topics was read.

    {"persistent://public/default/orders-partition-0": "12:3400@981200", ...}

Each names the first entry that was not read, `ledger:entry`, and where the broker keeps an index the number
of messages before it, `@index`. An end lies one behind an entry that exists. Spark compares offsets as text,
so keys are sorted and equal positions print equally.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.spark.errors import OptionError

_OFFSET = re.compile(r"(-?\d+):(-?\d+)(?:@(\d+))?")


class Offset(NamedTuple):
    """A place in one partition."""

    position: Position
    """First entry that was not read; EARLIEST stands for the first there is."""
    message_index: int | None
    """Messages before it; None when not known."""

    def __str__(self) -> str:
        return str(self.position) if self.message_index is None else f"{self.position}@{self.message_index}"

    @classmethod
    def parse(cls, text: str) -> Offset:
        """Reads `ledger:entry` or `ledger:entry@index`. Raises OptionError."""
        match = _OFFSET.fullmatch(text.strip())
        if match is None:
            raise OptionError(f"{text!r} is no offset: expected ledger:entry or ledger:entry@index")
        index = None if match[3] is None else int(match[3])
        return cls(Position(int(match[1]), int(match[2])), index)


FROM_EARLIEST: Final = Offset(EARLIEST, None)


def partition_order(topic: str) -> tuple[str, int]:
    """Sorts partitions by topic and number, not `-partition-10` before `-partition-2`."""
    name = TopicName.parse(topic)
    return str(name.base), name.partition


def encode_offsets(offsets: Mapping[str, Offset]) -> dict[str, str]:
    """For Spark: sorted, values as text."""
    return {topic: str(offsets[topic]) for topic in sorted(offsets, key=partition_order)}


def decode_offsets(encoded: Mapping[str, str]) -> dict[str, Offset]:
    """The inverse of `encode_offsets`. Raises OptionError."""
    return {topic: Offset.parse(text) for topic, text in encoded.items()}


def parse_offsets_option(option: str, text: str, partitions: Iterable[TopicName]) -> dict[str, Offset | str]:
    """Reads what users give: `{"topic": {"0": "ledger:entry"}}`; also "earliest" and "latest" as values.

    Topics may have their short names; a topic without partitions has the one number "0" or "-1", or the
    offset right behind its name. Offsets as a checkpoint holds them are read as well. Every partition that is
    named has to be one of `partitions`. Raises OptionError.
    """
    try:
        decoded: Any = json.loads(text)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise OptionError(
            f'{option}={text!r}: expected earliest, latest or JSON such as {{"topic": {{"0": "12:3400"}}}}'
        )
    known = {str(name): name for name in partitions}
    found: dict[str, Offset | str] = {}
    for topic, value in decoded.items():
        try:
            name = TopicName.parse(topic)
        except InvalidTopicNameError as error:
            raise OptionError(f"{option}: {error}") from error
        places = value if isinstance(value, dict) else {str(name.partition): value}
        for number, place in places.items():
            full = _partition_name(option, name, number, known)
            text_of_place = str(place)
            found[full] = (
                text_of_place if text_of_place in ("earliest", "latest") else Offset.parse(text_of_place)
            )
    return found


def _partition_name(option: str, name: TopicName, number: str, known: Mapping[str, TopicName]) -> str:
    candidates = [str(name)] if number in ("0", "-1", str(name.partition)) else []
    if number.isdigit() and name.partition < 0:
        candidates.append(str(name.with_partition(int(number))))
    for candidate in reversed(candidates):
        if candidate in known:
            return candidate
    raise OptionError(
        f"{option} names partition {number!r} of {name}, which is not read;"
        f" there are {', '.join(sorted(known))}"
    )
