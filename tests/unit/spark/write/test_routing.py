"""Rows to the entries of several topics."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.write.routing import Router
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry, blocks, decode_block
from magnetar.spark.write.written_columns import WrittenColumns


class TwoPartitions:
    """Stands for a client: topics whose name ends in 2 have two partitions."""

    def partitions(self, topic: TopicName) -> int:
        return 2 if topic.local.endswith("2") else 0


def router(*, topic: str = "") -> Router:
    options = WriteOptions.parse({"service.url": "pulsar://localhost:6650", "topic": topic})
    text = t.StringType()
    schema = t.StructType([t.StructField(name, text) for name in ("value", "key", "topic")])
    return Router(cast(Client, TwoPartitions()), options, WrittenColumns(options, schema), 0)


def rows_of(*rows: tuple[str, str | None]) -> pa.RecordBatch:
    columns = {
        "value": [value for value, _ in rows],
        "key": ["k" for _ in rows],
        "topic": [name for _, name in rows],
    }
    return pa.record_batch({name: pa.array(values, pa.string()) for name, values in columns.items()})


def values_of(entries: list[StagedEntry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        text = entry.payload.decode(errors="replace")
        found.setdefault(entry.topic, []).extend(text[at + 1 :][:2] for at in _marks(text))
    return found


def _marks(text: str) -> list[int]:
    return [at for at, letter in enumerate(text) if letter == "#"]


def test_each_row_goes_to_its_topic_in_order() -> None:
    made = router()
    batches = [rows_of(("#a1", "a"), ("#b1", "b2"), ("#a2", "a")), rows_of(("#b2", "b2"), ("#a3", "a"))]
    entries = list(made.entries(iter(batches)))
    full = "persistent://public/default/"
    assert values_of(entries) == {f"{full}a": ["a1", "a2", "a3"], f"{full}b2": ["b1", "b2"]}
    assert made.rows == 5
    assert len(made.partitions) == 2
    assert made.partitions[0] == f"{full}a"
    assert made.partitions[1].startswith(f"{full}b2-partition-")


def test_the_option_goes_before_the_column() -> None:
    made = router(topic="fixed")
    entries = list(made.entries(iter([rows_of(("#a1", "a"), ("#b1", None))])))
    assert values_of(entries) == {"": ["a1", "b1"]}
    assert made.partitions == ["persistent://public/default/fixed"]


@pytest.mark.parametrize(("topic", "reason"), [(None, "a row has none"), ("a/b", "column topic: ")])
def test_names_that_are_none(topic: str | None, reason: str) -> None:
    with pytest.raises(SparkSourceError, match=reason):
        list(router().entries(iter([rows_of(("v", topic))])))


@pytest.mark.parametrize("payload_bytes", [1, 200_000])
def test_blocks_say_where_their_entries_go(payload_bytes: int) -> None:
    """Also when a block ends between two entries of a topic."""
    names = ["", *"aabbba", ""]
    entries: list[Any] = [
        StagedEntry(-1, 1, b"tail", bytes([number]) * payload_bytes, name)
        for number, name in enumerate(names)
        if name
    ]
    cut = list(blocks(entries))
    assert (len(cut) > 1) is (payload_bytes > 1)
    assert [entry for block in cut for entry in decode_block(block)] == entries


def digest_of(*batches: pa.RecordBatch) -> int:
    made = router()
    list(made.entries(iter(batches)))
    return made.digest


def test_the_digest_is_that_of_the_rows_whatever_their_order() -> None:
    """A batch that is run again may be cut into other tasks, which take the rows in another order."""
    rows = [("#a1", "a"), ("#b1", "b2"), ("#a2", "a"), ("#a2", "a")]
    whole = digest_of(rows_of(*rows))
    assert digest_of(*[rows_of(each) for each in reversed(rows)]) == whole
    parts = digest_of(rows_of(*rows[:1])) + digest_of(rows_of(*rows[1:]))
    assert parts % (1 << 64) == whole
    for other in (
        rows[:3],
        [("#a3", "a"), *rows[1:]],
        [("#a1", "b2"), ("#b1", "a"), *rows[2:]],
        [*rows[:3], ("#b1", "b2")],
    ):
        assert digest_of(rows_of(*other)) != whole
