"""Values that are not what their schema says: kept in a column, sent to a topic, or left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.wire import pulsar_pb2 as pb
from support.history_topics import KEEP_EVERYTHING, HistoryTopic
from support.spark_queries import MicroBatches, Row, batch_rows, batched, plain, publish
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.one_process("history")]

RECORD = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
JSON = {"valueFormat": "json", "valueSchema": RECORD}
RESCUE = {"mode": "permissive", "columnNameOfCorruptRecord": "_corrupt_record"}


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that keeps everything, with a folder as its store."""
    with StandaloneProcess(tmp_path_factory.mktemp("keeper"), environment=KEEP_EVERYTHING) as process:
        yield process


def fill(keeper: StandaloneProcess, name: str) -> HistoryTopic:
    """Sound and broken values, alone, in a batch and with a key."""
    topic = HistoryTopic(keeper, f"persistent://public/default/{name}")
    entries = [
        plain('{"id":1}'),
        batched('{"id":2}', "poison", None),
        plain("{", partition_key="k", event_time=1234, properties=[pb.KeyValue(key="by", value="me")]),
        plain('{"id":3}'),
        plain("[", partition_key="AP8=", partition_key_b64_encoded=True),
    ]
    publish(keeper, topic.topic, entries)
    return topic


def offload(topic: HistoryTopic) -> None:
    """Its ledger ends and is offloaded."""
    topic.process.admin("PUT", f"{topic.path}/unload")
    topic.offload()


def shown(rows: list[Row]) -> list[tuple[Any, Any]]:
    return [(row["value"], row["_corrupt_record"]) for row in rows]


ROWS = [
    ({"id": 1}, None),
    ({"id": 2}, None),
    (None, b"poison"),
    (None, None),
    (None, b"{"),
    ({"id": 3}, None),
]
ROWS.append((None, b"["))


def test_the_rescue_column_has_the_payloads(keeper: StandaloneProcess) -> None:
    """From brokers and from files, alone too, and in a topic of plain bytes."""
    topic = fill(keeper, "rescued")
    rows = batch_rows(keeper, topic.topic, **RESCUE, **JSON)
    assert shown(rows) == ROWS
    offload(topic)
    assert batch_rows(keeper, topic.topic, **RESCUE, **JSON) == rows
    alone = batch_rows(keeper, topic.topic, columns="_corrupt_record", **RESCUE, **JSON)
    assert alone == [{"_corrupt_record": payload} for _, payload in ROWS]
    assert shown(batch_rows(keeper, topic.topic, limit="3", **RESCUE, **JSON)) == ROWS[:3]
    text = batch_rows(keeper, topic.topic, valueFormat="string", **RESCUE)
    assert shown(text)[2] == ("poison", None)
    assert shown(batch_rows(keeper, topic.topic, **RESCUE))[2] == (b"poison", None)
    sound = batch_rows(keeper, topic.topic, mode="dropmalformed", limit="4", **JSON)
    assert [row["value"] for row in sound] == [{"id": 1}, {"id": 2}, None, {"id": 3}]
    assert [row["is_null_value"] for row in sound] == [False, False, True, False]


def test_dead_letters_of_a_batch(keeper: StandaloneProcess) -> None:
    topic = fill(keeper, "batch")
    rows = batch_rows(keeper, topic.topic, deadLetterTopic="dead-batch", **RESCUE, **JSON)
    assert shown(rows) == ROWS
    letters = batch_rows(keeper, "dead-batch")
    assert [row["value"] for row in letters] == [b"poison", b"{", b"["]
    properties = [dict(row["properties"]) for row in letters]
    broken = [row["message_id"] for row in rows if row["_corrupt_record"] is not None]
    assert [each["ORIGIN_MESSAGE_ID"] for each in properties] == broken
    assert {each["REAL_TOPIC"] for each in properties} == {topic.topic}
    assert all("cannot be read as JSON" in each["EXCEPTION"] for each in properties)
    assert properties[1]["by"] == "me"
    assert [(row["key"], row["key_is_string"]) for row in letters] == [
        (None, None),
        (b"k", True),
        (b"\x00\xff", False),
    ]
    assert letters[1]["event_time"].timestamp() == 1.234
    # What lies behind a limit is not read, and what is sound is not a letter.
    batch_rows(keeper, topic.topic, deadLetterTopic="dead-limited", limit="4", **RESCUE, **JSON)
    assert [row["value"] for row in batch_rows(keeper, "dead-limited")] == [b"poison"]


def test_dead_letters_of_a_stream(keeper: StandaloneProcess) -> None:
    """Each batch sends its own; the topic of dead letters is among those that the query reads."""
    keeper.admin("PUT", "namespaces/public/stream", {"replication_clusters": ["standalone"]})
    topic, dead = "persistent://public/stream/orders", "persistent://public/stream/orders-dead"
    publish(keeper, topic, [plain("poison 1"), plain('{"id":1}')])
    query = MicroBatches(
        keeper,
        "",
        topicsPattern="public/stream/.*",
        startingOffsets="earliest",
        mode="dropmalformed",
        deadLetterTopic=dead,
        **JSON,
    )
    assert [row["value"] for row in query.batch()] == [{"id": 1}]
    publish(keeper, topic, [plain('{"id":2}'), plain("poison 2")])
    found = query.drain()
    assert [row["value"] for batch in found for row in batch] == [{"id": 2}]
    assert [row["value"] for row in batch_rows(keeper, dead)] == [b"poison 1", b"poison 2"]


def test_broker_lake_and_source_agree_on_messages_that_name_no_schema(keeper: StandaloneProcess) -> None:
    """The broker takes them by default; they are values of the newest version if they are that, wholly."""
    topic = HistoryTopic(keeper, "persistent://public/default/schemaless")
    with Client(keeper.broker_url, admin_url=keeper.http_url) as client:
        definition = pb.Schema(name="R", schema_data=RECORD.encode(), type=pb.Schema.Type.Avro)
        version = client.register_schema(TopicName.parse(topic.topic), definition)
    seven, text = chr(14), "poison"
    # As Avro the text begins with the number 56.
    entries = [plain(seven, schema_version=version), plain(seven), plain(text), plain("")]
    publish(keeper, topic.topic, entries)
    wanted = [{"id": 7}, {"id": 7}, None, None]
    rows = batch_rows(keeper, topic.topic, valueFormat="auto", **RESCUE)
    assert [row["value"] for row in rows] == wanted
    assert [row["_corrupt_record"] for row in rows] == [None, None, b"poison", b""]
    with pytest.raises(Exception, match="names no version of the Avro schema"):
        batch_rows(keeper, topic.topic, valueFormat="auto", endingOffsets=json.dumps({topic.topic: 3}))
    offload(topic)
    assert batch_rows(keeper, topic.topic, valueFormat="auto", **RESCUE) == rows
    files = [pq.read_table(path) for path in (keeper.data_dir / "offloaded").rglob("*.parquet")]
    (table,) = (table for table in files if table["payload"][0].as_py() == seven.encode())
    assert [value and {"id": value["id"]} for value in table["value"].to_pylist()] == wanted
