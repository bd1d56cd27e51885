"""Offsets as text, as options, in order."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.spark.errors import OptionError
from magnetar.spark.read.offsets import (
    AtIndex,
    AtTime,
    Offset,
    decode_offsets,
    encode_offsets,
    parse_place,
    parse_places_option,
)
from magnetar.wire import pulsar_pb2 as pb

BASE = TopicName.parse("orders")
PARTITIONS = [BASE.with_partition(number) for number in range(3)]
SINGLE = TopicName.parse("a/b/single")


def test_text_and_back() -> None:
    for text in ("12:3400", "12:3400@981200", "-1:-1", "0:0@0"):
        assert str(Offset.parse(text)) == text


@pytest.mark.parametrize("text", ["", "12", "12:", "12:x", "12:3@", "12:3@-1", "1:2:3"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(OptionError, match="expected ledger:entry"):
        Offset.parse(text)


def test_order_is_by_number_of_the_partition() -> None:
    names = [str(BASE.with_partition(number)) for number in (10, 2, 0)]
    offsets = {name: Offset(Position(1, 2), None) for name in names}
    assert [TopicName.parse(name).partition for name in encode_offsets(offsets)] == [0, 2, 10]
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_option_by_topic_and_partition() -> None:
    found = parse_places_option("startingOffsets", '{"orders": {"0": "1:2", "2": "latest"}}', PARTITIONS)
    assert found == {str(PARTITIONS[0]): Offset(Position(1, 2), None), str(PARTITIONS[2]): "latest"}


@pytest.mark.parametrize(
    "text", ['{"a/b/single": {"0": "1:2@9"}}', '{"a/b/single": {"-1": "1:2@9"}}', '{"a/b/single": "1:2@9"}']
)
def test_option_for_a_topic_without_partitions(text: str) -> None:
    found = parse_places_option("startingOffsets", text, [SINGLE])
    assert found == {str(SINGLE): Offset(Position(1, 2), 9)}


def test_offsets_of_a_checkpoint_are_an_option_too() -> None:
    offsets = {str(name): Offset(Position(4, 5), 6) for name in PARTITIONS}
    text = str(encode_offsets(offsets)).replace("'", '"')
    assert parse_places_option("startingOffsets", text, PARTITIONS) == offsets


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", "expected earliest, latest, a time or JSON"),
        ("[1]", "expected earliest, latest, a time or JSON"),
        ('{"orders": {"7": "1:2"}}', "names partition '7'"),
        ('{"other": {"0": "1:2"}}', "which is not read"),
        ('{"a/b": {"0": "1:2"}}', "invalid topic name"),
    ],
)
def test_bad_options(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_places_option("startingOffsets", text, PARTITIONS)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("Earliest", "earliest"),
        (-2, "earliest"),
        (-1, "latest"),
        (42, AtIndex(42)),
        ("12:34:-1:5", Offset(Position(12, 34), None)),
        ("12:34:0", Offset(Position(12, 34), None)),
        ("-1h", AtTime("-1h")),
        ("2025-01-01T00:00:00Z", AtTime("2025-01-01T00:00:00Z")),
        (list(pb.MessageIdData(ledgerId=7, entryId=3).SerializeToString()), Offset(Position(7, 3), None)),
    ],
)
def test_places(value: object, place: object) -> None:
    assert parse_place("startingOffsets", value) == place


@pytest.mark.parametrize("value", [True, None, [1], [300]])
def test_what_is_no_place(value: object) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        parse_place("startingOffsets", value)


def test_one_place_for_all_partitions_and_times_by_topic() -> None:
    assert parse_places_option("startingOffsets", '{"orders": 5}', PARTITIONS) == {
        str(name): AtIndex(5) for name in PARTITIONS
    }
    found = parse_places_option("startingTimestamp", '{"orders": {"1": 1000}}', PARTITIONS, times=True)
    assert found == {str(PARTITIONS[1]): AtTime("1000")}
