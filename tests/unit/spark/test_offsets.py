"""Offsets as text, as options, in order."""

from __future__ import annotations

import pytest

from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.spark.errors import OptionError
from magnetar.spark.offsets import Offset, decode_offsets, encode_offsets, parse_offsets_option

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
    found = parse_offsets_option("startingOffsets", '{"orders": {"0": "1:2", "2": "latest"}}', PARTITIONS)
    assert found == {str(PARTITIONS[0]): Offset(Position(1, 2), None), str(PARTITIONS[2]): "latest"}


@pytest.mark.parametrize(
    "text", ['{"a/b/single": {"0": "1:2@9"}}', '{"a/b/single": {"-1": "1:2@9"}}', '{"a/b/single": "1:2@9"}']
)
def test_option_for_a_topic_without_partitions(text: str) -> None:
    found = parse_offsets_option("startingOffsets", text, [SINGLE])
    assert found == {str(SINGLE): Offset(Position(1, 2), 9)}


def test_offsets_of_a_checkpoint_are_an_option_too() -> None:
    offsets = {str(name): Offset(Position(4, 5), 6) for name in PARTITIONS}
    text = str(encode_offsets(offsets)).replace("'", '"')
    assert parse_offsets_option("startingOffsets", text, PARTITIONS) == offsets


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", "expected earliest, latest or JSON"),
        ("[1]", "expected earliest, latest or JSON"),
        ('{"orders": {"7": "1:2"}}', "names partition '7'"),
        ('{"other": {"0": "1:2"}}', "which is not read"),
        ('{"a/b": {"0": "1:2"}}', "invalid topic name"),
    ],
)
def test_bad_options(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_offsets_option("startingOffsets", text, PARTITIONS)
