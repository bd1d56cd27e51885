"""Offsets: the read position of each partition of the topics.

    {"persistent://public/default/orders-partition-0": "12:3400@981200", ...}

Each names the first unread entry, `ledger:entry`, and the number of messages before it, `@index`, when the
broker keeps an index. An end lies directly behind an existing entry. Spark compares offsets as text, so keys
are sorted and equal positions have equal texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.base.names import InvalidTopicNameError, TopicName
from magnetar.spark.errors import OptionError
from magnetar.wire import pulsar_pb2 as pb

_OFFSET = re.compile(r"(-?\d+):(-?\d+)(?:@(\d+))?")
_MESSAGE_ID = re.compile(r"(\d+):(\d+):-?\d+(?::-?\d+)?")


class Offset(NamedTuple):
    """A read position in one partition."""

    position: Position
    """The first unread entry; EARLIEST stands for the first existing one."""
    message_index: int | None
    """Messages before `position`; None when unknown."""

    def __str__(self) -> str:
        return str(self.position) if self.message_index is None else f"{self.position}@{self.message_index}"

    @classmethod
    def parse(cls, text: str) -> Offset:
        """Reads `ledger:entry` or `ledger:entry@index`. Raises OptionError."""
        match = _OFFSET.fullmatch(text.strip())
        if match is None:
            raise OptionError(f"{text!r} is not an offset: expected ledger:entry or ledger:entry@index")
        index = None if match[3] is None else int(match[3])
        return cls(Position(LedgerId(int(match[1])), int(match[2])), index)


FROM_EARLIEST: Final = Offset(EARLIEST, None)


def partition_order(topic: str) -> tuple[str, int]:
    """Sort key of a partition: topic and number, so that `-partition-2` comes before `-partition-10`."""
    name = TopicName.parse(topic)
    return str(name.base), name.partition


def encode_offsets(offsets: Mapping[str, Offset]) -> dict[str, str]:
    """Offsets in the form for Spark: sorted by partition, values as text."""
    return {topic: str(offsets[topic]) for topic in sorted(offsets, key=partition_order)}


def decode_offsets(encoded: Mapping[str, str]) -> dict[str, Offset]:
    """The inverse of `encode_offsets`. Raises OptionError."""
    return {topic: Offset.parse(text) for topic, text in encoded.items()}


class AtTime(NamedTuple):
    """The first message published at this time or later."""

    text: str
    """As `timestamps.parse_time` reads it."""


class AtIndex(NamedTuple):
    """The message with this number in its partition."""

    number: int


Place: TypeAlias = "Offset | AtTime | AtIndex | str"
"""A place that an option can name; a text is `earliest` or `latest`."""


def parse_place(option: str, value: object) -> Place:
    """Reads one place of an option.

    Args:
        value: `earliest`, `latest`, `ledger:entry` (also with partition and batch index behind it, as in the
            column message_id: the entry is meant), a point in time, Kafka's numbers (-2 earliest, -1 latest,
            others count messages), or the bytes of a MessageIdData as a list, as pulsar-spark keeps it.

    Raises OptionError.
    """
    if isinstance(value, bool) or value is None:
        raise OptionError(f"{option}: {value!r} is not a place in a topic")
    if isinstance(value, int):
        return {-2: "earliest", -1: "latest"}.get(value) or AtIndex(value)
    if isinstance(value, list):
        try:
            message_id = pb.MessageIdData.FromString(bytes(value))
        except (ValueError, TypeError, DecodeError):
            raise OptionError(f"{option}: {value!r} are not the bytes of a message id") from None
        return Offset(Position(LedgerId(_signed(message_id.ledgerId)), _signed(message_id.entryId)), None)
    text = str(value).strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    found = _MESSAGE_ID.fullmatch(text)
    if found is not None:
        return Offset(Position(LedgerId(int(found[1])), int(found[2])), None)
    return Offset.parse(text) if _OFFSET.fullmatch(text) else AtTime(text)


def _signed(number: int) -> int:
    """The signed value of an unsigned number of the protocol: earliest and latest use -1."""
    return number - (1 << 64) if number >= 1 << 63 else number


def parse_places_option(
    option: str, text: str, partitions: Iterable[TopicName], *, times: bool = False
) -> dict[str, Place]:
    """Reads an option with places by topic: `{"topic": {"0": "ledger:entry"}}`; see `parse_place`.

    Topics may have short names. A topic without partitions has the single number "0" or "-1". A place
    directly after a topic's name applies to all its partitions. Offsets in the form of a checkpoint are
    accepted too. With `times`, numbers are Unix milliseconds.

    Raises OptionError, also for a partition that is not in `partitions`.
    """
    try:
        decoded: object = json.loads(text)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise OptionError(
            f"{option}={text!r}: expected earliest, latest, a time or JSON such as"
            ' {"topic": {"0": "12:3400"}}'
        )
    known = {str(name): name for name in partitions}
    found: dict[str, Place] = {}
    for topic, value in decoded.items():
        try:
            name = TopicName.parse(topic)
        except InvalidTopicNameError as error:
            raise OptionError(f"{option}: {error}") from error
        if isinstance(value, dict):
            names = {_partition_name(option, name, number, known): place for number, place in value.items()}
        else:
            own = [full for full, each in known.items() if name in (each, each.base)]
            names = dict.fromkeys(own or [_partition_name(option, name, str(name.partition), known)], value)
        for full, place in names.items():
            found[full] = AtTime(str(place)) if times else parse_place(option, place)
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
