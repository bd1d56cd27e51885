"""What users of the existing connector complained of, one test each, and filters that must not lose rows."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from magnetar.adminclient.admin import Admin
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.spark.errors import OptionError, TopicDataLossError
from magnetar.spark.source import MagnetarSource
from magnetar.wire import pulsar_pb2 as pb
from support.spark_queries import (
    MicroBatches,
    batch_rows,
    batched,
    options,
    plain,
    publish,
    schema_of,
    values,
)
from support.spark_topics import connection, new_topic, numbered, reading
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]


@pytest.fixture(scope="module", autouse=True)
def kept(standalone: StandaloneProcess) -> Iterator[None]:
    """Topics without clients for a minute stay, as on a busy machine a session takes its time."""
    path = "namespaces/public/default/retention"
    standalone.admin("POST", path, {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    yield
    standalone.admin("DELETE", path)


def register(standalone: StandaloneProcess, topic: str, kind: str, data: bytes, **properties: str) -> bytes:
    """Gives the topic a schema; returns its version."""
    schema = pb.Schema(name="s", type=pb.Schema.Type.Value(kind), schema_data=data)
    for key, value in properties.items():
        schema.properties.add(key=key.replace("_", "."), value=value)
    with Client(standalone.broker_url) as client:
        return client.register_schema(TopicName.parse(topic), schema)


def avro(**fields: str) -> bytes:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": named}).encode()


def test_1_the_backlog_shrinks_as_the_job_reads(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [plain(name) for name in numbered(30)])
    query = MicroBatches(
        standalone, topic, subscription="job", startingOffsets="earliest", maxRowsPerTrigger="10"
    )
    backlogs = []
    while query.batch():
        stats = standalone.admin("GET", f"persistent/public/default/{topic}/stats")
        backlogs.append(stats["subscriptions"]["job"]["msgBacklog"])
    assert backlogs == [20, 10, 0]


def test_2_rows_of_a_trigger_have_a_maximum_and_a_minimum(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [plain(name) for name in numbered(25)])
    limits = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "6", "maxTriggerDelay": "1h"}
    query = MicroBatches(standalone, topic, startingOffsets="earliest", **limits)
    assert [len(rows) for rows in query.drain()] == [10, 10]
    publish(standalone, topic, [plain("26")])
    assert len(query.batch()) == 6


def test_3_a_limit_of_bytes_needs_one_url_and_one_call_a_partition(
    standalone: StandaloneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("x" * 1000) for _ in range(20)])
    query = MicroBatches(standalone, topic, startingOffsets="earliest", maxBytesPerTrigger="5000")
    query.batch()
    asked: list[str] = []
    call = Admin.call

    def counted(admin: Admin, method: str, path: str, *rest: object, **words: Any) -> Any:
        asked.append(path)
        return call(admin, method, path, *rest, **words)

    monkeypatch.setattr(Admin, "call", counted)
    rows = query.batch(commit=False)
    assert 3 <= len(rows) <= 5
    assert [path.rpartition("/")[2] for path in asked if "/admin/" in path] == ["internalStats"]


def test_4_key_value_topics_are_read(spark: SparkSession, standalone: StandaloneProcess) -> None:
    """As Debezium writes them: key and value by schemas of their own."""
    topic = new_topic(standalone)
    key, value = avro(id="long"), avro(name="string")
    data = b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
    version = register(
        standalone, topic, "KeyValue", data, key_schema_type="AVRO", value_schema_type="AVRO",
        kv_encoding_type="INLINE",
    )  # fmt: skip
    raw = b"".join(struct.pack(">i", len(part)) + part for part in (b"\x0e", b"\x04ab"))
    publish(standalone, topic, [(pb.MessageMetadata(schema_version=version), raw)])
    frame = reading(spark, standalone, topic, valueFormat="auto").load()
    assert frame.select("value.key.id", "value.value.name").collect() == [(7, "ab")]
    assert batch_rows(standalone, topic, valueFormat="keyvalue")[0]["value"] == {
        "key": {"id": 7},
        "value": {"name": "ab"},
    }


def test_5_protobuf_topics_are_read(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="o", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="tags", number=2, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    pool = DescriptorPool()
    pool.Add(file)
    order: Any = GetMessageClass(pool.FindMessageTypeByName("o.Order"))
    document = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": "o.Order",
        "rootFileDescriptorName": "o.proto",
    }
    topic = new_topic(standalone)
    version = register(standalone, topic, "ProtobufNative", json.dumps(document).encode())
    raw = order(id=5, tags=["a", "b"]).SerializeToString()
    publish(standalone, topic, [(pb.MessageMetadata(schema_version=version), raw)])
    frame = reading(spark, standalone, topic, valueFormat="auto").load()
    assert frame.select("value.id", "value.tags").collect() == [(5, ["a", "b"])]
    # Without a schema in the topic, by a descriptor of one's own.
    bare = new_topic(standalone)
    publish(standalone, bare, [(pb.MessageMetadata(), raw)])
    (tmp_path / "o.desc").write_bytes(files)
    more = {"protobufDescriptor": str(tmp_path / "o.desc"), "protobufMessage": "o.Order"}
    assert values(batch_rows(standalone, bare, valueFormat="protobuf", **more)) == [
        {"id": 5, "tags": ["a", "b"]}
    ]


def test_6_topics_of_different_schemas(spark: SparkSession, standalone: StandaloneProcess) -> None:
    name = new_topic(standalone)
    version = register(standalone, f"{name}-a", "Avro", avro(id="int"))
    publish(standalone, f"{name}-a", [plain("\x02", schema_version=version)])
    version = register(standalone, f"{name}-b", "Avro", avro(id="int", more="string"))
    publish(standalone, f"{name}-b", [plain("\x04\x02x", schema_version=version)])
    both = {"topics": f"{name}-a,{name}-b"}
    with pytest.raises(OptionError, match="has another schema than"):
        batch_rows(standalone, "", valueFormat="auto", **both)
    rows = batch_rows(standalone, "", valueFormat="auto", allowDifferentTopicSchemas="true", **both)
    assert values(rows) == [{"id": 1}, {"id": 2}]
    json_topic = new_topic(standalone)
    publish(standalone, json_topic, [plain('{"id": 1}'), plain('{"other": [true, null]}')])
    frame = reading(spark, standalone, json_topic, valueFormat="variant").load()
    found = frame.selectExpr("try_variant_get(value, '$.id', 'int')", "to_json(value)").collect()
    assert found == [(1, '{"id":1}'), (None, '{"other":[true,null]}')]


def test_7_wrong_options_are_told_with_what_is_right(spark: SparkSession) -> None:
    for given, reason in (
        ({"service.ulr": "pulsar://h:6650", "topic": "t"}, "did you mean 'service.url'"),
        ({"service.url": "pulsar://h:6650"}, "one of the options topic"),
        ({"service.url": "h:6650", "topic": "t"}, "not a service URL"),
    ):
        with pytest.raises(Exception, match=reason):
            spark.read.format("magnetar").options(**given).load()


def test_8_a_stream_of_python_without_a_jar(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [batched(*numbered(10)), batched(*numbered(10, 10))])
    assert spark.conf.get("spark.jars", "") == spark.conf.get("spark.jars.packages", "") == ""
    found: list[str] = []
    query = (
        spark.readStream.format("pulsar")
        .options(**connection(standalone, topic), startingOffsets="earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS text")
        .writeStream.foreachBatch(lambda frame, number: found.extend(row.text for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    assert found == numbered(20)


def test_9_nothing_is_skipped_silently_when_data_were_trimmed(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [plain(name) for name in numbered(10)])
    query = MicroBatches(standalone, topic, startingOffsets="earliest", maxRowsPerTrigger="4")
    assert values(query.batch()) == numbered(4)
    standalone.admin("DELETE", f"persistent/public/default/{topic}")
    publish(standalone, topic, [plain("new")])
    with pytest.raises(TopicDataLossError, match="was deleted and made again"):
        query.batch()


def test_10_topics_without_a_schema_are_bytes(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    publish(standalone, topic, [plain("anything")])
    assert batch_rows(standalone, topic, valueFormat="auto")[0]["value"] == b"anything"
    with pytest.raises(OptionError, match="has no schema; give valueSchema"):
        batch_rows(standalone, topic, valueFormat="avro")


def test_11_what_was_written_has_a_schema(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    rows = spark.range(3).selectExpr("named_struct('id', id, 'name', CAST(id AS STRING)) AS value")
    writer = rows.coalesce(1).write.format("magnetar").options(**connection(standalone, topic))
    writer.option("valueFormat", "avro").mode("append").save()
    frame = reading(spark, standalone, topic, valueFormat="auto").load().select("value.*")
    assert frame.collect() == [(number, str(number)) for number in range(3)]


def test_12_messages_are_decoded_in_bulk(standalone: StandaloneProcess) -> None:
    """No object for a message: what tasks make is a few batches of columns."""
    topic = new_topic(standalone)
    publish(standalone, topic, [batched(*numbered(200)) for _ in range(100)])
    source = MagnetarSource(options(standalone, topic))
    reader = source.reader(schema_of(source))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(batch.num_rows for batch in batches) == 20_000
    assert len(batches) <= 3


@pytest.mark.parametrize("pushing", ["false", "true"])
def test_filters_lose_no_rows(spark: SparkSession, standalone: StandaloneProcess, pushing: str) -> None:
    """Spark keeps what was pushed for a DataFrame, also for the next query of it; and it refuses a reader
    that takes filters while pushing is off."""
    topic = new_topic(standalone, partitions=2)
    for number in range(2):
        entries = [plain(name, partition_key=name[-1]) for name in numbered(20, 20 * number)]
        publish(standalone, f"{topic}-partition-{number}", entries)
    conf = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(conf)
    spark.conf.set(conf, pushing)
    try:
        frame = reading(spark, standalone, topic, columns="partition,key").load()
        first, second = frame.where("partition = 0"), frame.where("partition = 1 AND key = X'33'")
        assert (first.count(), second.count(), frame.count()) == (20, 2, 40)
        assert first.union(second).count() == 22
        narrow = reading(spark, standalone, topic, columns="partition,key", pushFilters="true").load()
        chosen = narrow.where("partition = 1 AND key IN (X'33', X'34') AND partition IS NOT NULL")
        assert chosen.count() == 4
        assert chosen.rdd.getNumPartitions() == (1 if pushing == "true" else 2)
    finally:
        spark.conf.set(conf, before or "true")
