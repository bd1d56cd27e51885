"""The source against a real broker, without Spark: what it plans, reads, admits and commits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import OptionError, SparkSourceError, TopicDataLossError
from magnetar.spark.source import MagnetarSource
from magnetar.wire import pulsar_pb2 as pb
from support.spark_queries import (
    MicroBatches,
    batch_rows,
    batched,
    options,
    pieces,
    plain,
    publish,
    rows_of,
    schema_of,
    values,
)
from support.spark_topics import new_topic, numbered, set_partitions
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]


def singles(names: list[str]) -> list[Any]:
    return [plain(name) for name in names]


def test_starts_and_ends(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    start_ms = time.time_ns() // 1_000_000 - 100_000
    places = publish(
        standalone,
        topic,
        [plain(name, publish_time=start_ms + 1000 * number) for number, name in enumerate(numbered(20))],
    )

    def read(**more: str) -> list[str]:
        return values(batch_rows(standalone, topic, **more))

    def by_topic(place: object) -> str:
        return json.dumps({topic: place})

    names = numbered(20)
    five = str(places[5])
    moment_ms = start_ms + 5000
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment_ms // 1000)) + f".{moment_ms % 1000:03d}Z"
    raw = list(pb.MessageIdData(ledgerId=places[5].ledger_id, entryId=places[5].entry_id).SerializeToString())
    for given in (
        {"startingOffsets": by_topic({"0": five})},
        {"startingOffsets": by_topic(f"{five}:-1:-1")},
        {"startingOffsets": by_topic(5)},
        {"startingOffsets": by_topic(raw)},
        {"startingOffsets": by_topic(text)},
        {"startingOffsets": text},
        {"startingTimestamp": str(moment_ms)},
        {"startingTime": text},
        {"startingOffsetsByTimestamp": by_topic({"0": moment_ms})},
    ):
        assert read(**given) == names[5:], given
    for given in (
        {"endingOffsets": by_topic(five)},
        {"endingOffsets": by_topic({"0": 5})},
        {"endingTimestamp": text},
        {"endingOffsetsByTimestamp": by_topic(moment_ms)},
    ):
        assert read(**given) == names[:5], given
    assert read(startingOffsets="-1h") == names
    assert read(startingOffsets=by_topic(-2), endingOffsets=by_topic(-1)) == names
    assert read(startingOffsets=by_topic({"0": "latest"})) == []
    with pytest.raises(OptionError, match="positions are given by topic"):
        read(startingOffsets=five)


def test_limit_is_exact_and_in_order(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone, partitions=2)
    for number in range(2):
        entries = [batched(*numbered(10, 100 * number + first)) for first in range(0, 40, 10)]
        publish(standalone, f"{topic}-partition-{number}", entries)
    for limit in (1, 7, 45, 80, 1000):
        rows = values(batch_rows(standalone, topic, limit=str(limit)))
        assert rows == (numbered(40) + numbered(40, 100))[:limit]
    with pytest.raises(OptionError, match="for batches"):
        MicroBatches(standalone, topic, limit="5")


def test_topics_by_list_pattern_namespace_and_partition(standalone: StandaloneProcess) -> None:
    name = new_topic(standalone)
    standalone.admin("PUT", f"namespaces/public/{name}", {"replication_clusters": ["standalone"]})
    space = f"public/{name}"
    for suffix in ("a", "b", "x"):
        publish(standalone, f"persistent://{space}/t-{suffix}", [plain(f"in {suffix}")])

    def read(**more: str) -> list[str]:
        return sorted(values(batch_rows(standalone, "", **more)))

    assert read(topics=f"{space}/t-x,{space}/t-a") == ["in a", "in x"]
    assert read(topicsPattern=f"{space}/t-[ab]") == ["in a", "in b"]
    assert read(namespace=space) == ["in a", "in b", "in x"]
    topic = new_topic(standalone, partitions=3)
    for number in range(3):
        publish(standalone, f"{topic}-partition-{number}", [plain(f"p{number}")])
    source = MagnetarSource({"service.url": standalone.http_url, "assign": json.dumps({topic: [0, 2]})})
    reader = source.reader(schema_of(source))
    assert [partition.topic[-1] for partition in reader.partitions()] == ["0", "2"]


def test_minimum_rows_wait_but_not_for_ever_and_not_at_the_end(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, singles(numbered(5)))
    more = {"startingOffsets": "earliest", "minRowsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = MicroBatches(standalone, topic, **more)
    assert query.batch() == []
    publish(standalone, topic, singles(numbered(5, 5)))
    assert values(query.batch()) == numbered(10)
    publish(standalone, topic, singles(numbered(3, 10)))
    assert query.batch() == []
    # Asked for all, it gives all; so it does when the query ends at what is there.
    end = query.reader.latestOffset(query.offset, ReadAllAvailable())
    assert end != query.offset
    last = MicroBatches(standalone, topic, offset=query.offset, available_now=True, **more)
    assert values(last.batch()) == numbered(3, 10)
    impatient = MicroBatches(standalone, topic, **{**more, "maxTriggerDelay": "0ms"})
    assert len(impatient.batch()) == 13


def test_restart_in_the_middle_of_a_batch_gives_it_again(standalone: StandaloneProcess) -> None:
    """Planned, logged, read, and then the driver died: the same offsets give the same rows."""
    topic = new_topic(standalone, partitions=2)
    for number in range(2):
        publish(standalone, f"{topic}-partition-{number}", singles(numbered(50, 50 * number)))
    more = {"startingOffsets": "earliest", "maxRowsPerTrigger": "30"}
    query = MicroBatches(standalone, topic, **more)
    start = query.offset
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    lost = query.batch(commit=False)
    publish(standalone, f"{topic}-partition-0", singles(numbered(10, 1000)))
    again = MicroBatches(standalone, topic, offset=start, **more)
    partitions = again.reader.partitions(start, end)
    assert rows_of(again.task, partitions) == lost
    again.offset = end
    everything = values(lost) + [value for rows in again.drain() for value in values(rows)]
    assert sorted(everything) == numbered(100) + numbered(10, 1000)


def test_available_now_ends_while_producers_go_on(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone, partitions=1)
    publish(standalone, f"{topic}-partition-0", singles(numbered(20)))
    more = {"startingOffsets": "earliest", "maxRowsPerTrigger": "8"}
    query = MicroBatches(standalone, topic, available_now=True, **more)
    found = []
    while rows := query.batch():
        found += values(rows)
        publish(standalone, f"{topic}-partition-0", singles(["later"]))
        set_partitions(standalone, topic, 1 + len(found) // 8 + 1, method="POST")
    assert found == numbered(20)


def test_partitions_and_topics_that_come_while_running(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone, partitions=1)
    publish(standalone, f"{topic}-partition-0", singles(["a"]))
    query = MicroBatches(standalone, "", topicsPattern=f"{topic}.*", subscription="job")
    assert query.batch() == []  # It starts at the end.
    set_partitions(standalone, topic, 2, method="POST")
    publish(standalone, f"{topic}-partition-1", singles(["b"]))
    publish(standalone, f"{topic}-other", singles(["c"]))
    publish(standalone, f"{topic}-partition-0", singles(["d"]))
    assert sorted(values(query.batch())) == ["b", "c", "d"]
    assert query.batch() == []
    for name in (f"{topic}-partition-0", f"{topic}-partition-1", f"{topic}-other"):
        stats = standalone.admin("GET", f"persistent/public/default/{name}/stats")
        assert stats["subscriptions"]["job"]["msgBacklog"] == 0


def test_streams_may_wait_for_topics(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    with pytest.raises(Exception, match="there is no such topic"):
        MicroBatches(standalone, topic)
    query = MicroBatches(standalone, topic, waitingForNonExistedTopic="true")
    assert query.batch() == []
    publish(standalone, topic, singles(["first"]))
    assert values(query.batch()) == ["first"]


@pytest.mark.parametrize("strict", [True, False])
def test_a_deleted_topic(standalone: StandaloneProcess, strict: bool) -> None:
    topic = new_topic(standalone)
    for suffix in ("a", "b"):
        publish(standalone, f"{topic}-{suffix}", singles([suffix]))
    more = {
        "topicsPattern": f"{topic}-.",
        "startingOffsets": "earliest",
        "failOnDataLoss": str(strict),
    }
    query = MicroBatches(standalone, "", **more)
    assert sorted(values(query.batch())) == ["a", "b"]
    standalone.admin("DELETE", f"persistent/public/default/{topic}-a")
    publish(standalone, f"{topic}-b", singles(["b2"]))
    # The same before and after a restart.
    for each in (query, MicroBatches(standalone, "", offset=query.offset, **more)):
        if strict:
            with pytest.raises(SparkSourceError, match=rf"data loss: there is no .*{topic}-a \(read up to"):
                each.batch()
        else:
            assert values(each.batch(commit=False)) == ["b2"]


def test_large_messages_over_the_borders_of_ranges(standalone: StandaloneProcess) -> None:
    """Whatever the cut, each message is there once: the range with its last piece has it."""
    topic = new_topic(standalone)
    entries = [plain("first")]
    one, two = pieces("A" * 1000, of=4, uuid="one"), pieces("B" * 900, of=3, uuid="two")
    entries += [one[0], plain("x"), two[0], one[1], one[2], plain("y"), two[1], one[3], two[2], plain("last")]
    places = publish(standalone, topic, entries)
    expected = ["first", "x", "y", "A" * 1000, "B" * 900, "last"]
    for cuts in range(1, 12):
        assert values(batch_rows(standalone, topic, minPartitions=str(cuts))) == expected, cuts
    for limit in range(1, 12):
        query = MicroBatches(standalone, topic, startingOffsets="earliest", maxRowsPerTrigger=str(limit))
        end = query.reader.latestOffset(query.offset, ReadAllAvailable())
        found = []
        while query.offset != end:
            before = query.offset
            found += values(query.batch())
            if query.offset == before:
                break
        assert found == expected, limit
    # From a piece on: the message ends behind it, so it is read.
    start = json.dumps({topic: str(places[7])})
    assert values(batch_rows(standalone, topic, startingOffsets=start)) == expected[3:]


def test_a_large_message_whose_beginning_was_removed(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    one = pieces("A" * 1000, of=4, uuid="one")
    publish(standalone, topic, [*one[1:], plain("y")])
    with pytest.raises(Exception, match="whose beginning is not there any more"):
        batch_rows(standalone, topic)
    assert values(batch_rows(standalone, topic, failOnDataLoss="false")) == ["y"]


def test_encrypted_entries(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    sealed = plain("sealed", encryption_algo="AES")
    sealed[0].encryption_keys.add(key="k", value=b"v")
    publish(standalone, topic, [plain("a"), sealed, plain("b")])
    with pytest.raises(Exception, match=r"is encrypted by its producer.*encrypted=skip"):
        batch_rows(standalone, topic)
    assert values(batch_rows(standalone, topic, encrypted="skip")) == ["a", "b"]
    rows = batch_rows(standalone, topic, encrypted="bytes")
    assert values(rows) == ["a", "sealed", "b"]
    assert [row["encryption"] and row["encryption"]["keys"] for row in rows] == [
        None,
        [{"name": "k", "value": b"v"}],
        None,
    ]


def test_null_values_delayed_messages_and_keys(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    later = plain("later", deliver_at_time=time.time_ns() // 1_000_000 + 3_600_000)
    publish(
        standalone,
        topic,
        [
            batched("a", None),
            plain("", null_value=True, partition_key="k"),
            later,
            plain("z", partition_key="z"),
        ],
    )
    rows = batch_rows(standalone, topic)
    assert [(row["value"], row["is_null_value"]) for row in rows] == [
        (b"a", False),
        (None, True),
        (None, True),
        (b"later", False),
        (b"z", False),
    ]
    assert values(batch_rows(standalone, topic, keys="z,other")) == ["z"]
    assert batch_rows(standalone, topic, keys='["k"]')[0]["is_null_value"]


def test_compacted_topics_are_read_whole(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    for number in range(3):
        publish(standalone, topic, [plain(f"{key}{number}", partition_key=key) for key in "ab"])
    standalone.admin("PUT", f"persistent/public/default/{topic}/compaction")
    assert values(batch_rows(standalone, topic)) == [f"{key}{number}" for number in range(3) for key in "ab"]


def test_what_was_removed_is_named_with_the_rule(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, singles(numbered(5)))
    query = MicroBatches(standalone, topic, startingOffsets="earliest")
    assert len(query.batch()) == 5
    publish(standalone, topic, singles(numbered(5, 5)))
    standalone.admin("DELETE", f"persistent/public/default/{topic}")
    publish(standalone, topic, singles(numbered(5, 10)))
    with pytest.raises(TopicDataLossError) as lost:
        query.batch()
    text = str(lost.value)
    assert f"persistent://public/default/{topic} should be read from" in text
    assert "In public/default retention keeps nothing that all subscriptions are done with" in text
    lax = MicroBatches(standalone, topic, offset=query.offset, failOnDataLoss="false")
    assert values(lax.batch()) == numbered(5, 10)


def test_a_subscription_holds_what_was_not_read(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, singles(numbered(4)))
    query = MicroBatches(standalone, topic, subscription="job")
    path = f"persistent/public/default/{topic}/stats"

    def backlog() -> int:
        return int(standalone.admin("GET", path)["subscriptions"]["job"]["msgBacklog"])

    assert backlog() == 0  # What lies before the start is not the query's.
    publish(standalone, topic, singles(numbered(6, 4)))
    assert backlog() == 6
    rows = query.batch(commit=False)
    assert (len(rows), backlog()) == (6, 6)
    assert len(query.batch()) == 6
    assert backlog() == 0


def test_schema_versions_within_one_read(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    first = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    more = {"name": "b", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*first["fields"], more]}
    with Client(standalone.broker_url) as client:
        name = TopicName.parse(topic)
        versions = [
            client.register_schema(
                name,
                pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=json.dumps(definition).encode()),
            )
            for definition in (first, second)
        ]
    publish(
        standalone,
        topic,
        [
            plain("\x02", schema_version=versions[0]),
            plain("\x04\x02\x02x", schema_version=versions[1]),
            plain("\x06", schema_version=versions[0]),
        ],
    )
    expected = [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 3, "b": None}]
    assert values(batch_rows(standalone, topic, valueFormat="auto")) == expected
    old = batch_rows(standalone, topic, valueFormat="avro", schemaVersion="0")
    assert values(old) == [{"a": number} for number in (1, 2, 3)]
    with pytest.raises(OptionError, match=r"the schema of .* is AVRO"):
        batch_rows(standalone, topic, valueFormat="protobuf")


def test_many_topics_by_pattern(standalone: StandaloneProcess) -> None:
    """Each topic costs the driver two calls a batch, and nothing when it has nothing new."""
    name = new_topic(standalone)
    count = 60
    for number in range(count):
        publish(standalone, f"{name}-{number}", singles([f"{number}"]))
    query = MicroBatches(standalone, "", topicsPattern=f"{name}-.*", startingOffsets="earliest")
    assert sorted(map(int, values(query.batch()))) == list(range(count))
    assert query.batch() == []


def test_one_url_is_enough(standalone: StandaloneProcess) -> None:
    assert "admin.url" not in options(standalone, "t")


def test_a_value_that_is_not_what_the_schema_says_is_named_or_null(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    places = publish(standalone, topic, [plain('{"id":1}'), batched('{"id":2}', "poison"), plain('{"id":3}')])
    more = {"valueFormat": "json", "valueSchema": _ID_SCHEMA}
    with pytest.raises(Exception, match=rf"message {places[1]}:-1:1 of .*{topic}"):
        batch_rows(standalone, topic, **more)
    rows = batch_rows(standalone, topic, mode="permissive", **more)
    assert [row["value"] for row in rows] == [{"id": 1}, {"id": 2}, None, {"id": 3}]
    assert [row["is_null_value"] for row in rows] == [False] * 4


_ID_SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
