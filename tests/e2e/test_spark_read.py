"""Topics as tables of a real Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from support.spark_topics import (
    connection,
    fill,
    new_topic,
    numbered,
    reading,
    set_partitions,
    values_of,
)
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]


def test_every_column(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone, partitions=2)
    fill(standalone, topic, numbered(100), producer_name="p")
    rows = reading(spark, standalone, topic).load().orderBy("value").collect()
    assert [bytes(row.value).decode() for row in rows] == numbered(100)
    for number, row in enumerate(rows):
        # Spark's rows hold times in the zone of this process.
        moment = datetime.fromtimestamp((1_700_000_000_000 + number) / 1000, UTC)
        assert bytes(row.key) == b"%d" % (number % 10)
        assert row.key_is_string
        assert row.topic == f"persistent://public/default/{topic}"
        assert row.partition in (0, 1)
        assert row.event_time == moment.astimezone().replace(tzinfo=None)
        assert row.properties == {"value": bytes(row.value).decode()}
        assert row.producer_name.startswith("p")
        assert (row.ordering_key, row.schema_version, row.replicated_from) == (None, None, None)
        assert not row.is_null_value
    ids = {row.message_id for row in rows}
    assert len(ids) == 100
    for partition in (0, 1):
        indexes = sorted(row.entry_index for row in rows if row.partition == partition)
        assert indexes == list(range(len(indexes)))
        assert {row.message_id.split(":")[2] for row in rows if row.partition == partition} == {
            str(partition)
        }


def test_fewer_columns_more_tasks(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    fill(standalone, topic, numbered(200))
    fill(standalone, topic, numbered(50, 200), batching_enabled=False)
    frame = reading(spark, standalone, topic, columns="value", minPartitions="4").load()
    assert frame.columns == ["value"]
    assert frame.rdd.getNumPartitions() == 4
    assert values_of(frame) == numbered(250)
    by_rows = reading(spark, standalone, topic, maxRowsPerPartition="50", valueFormat="string").load()
    assert by_rows.rdd.getNumPartitions() == 5
    assert [row.value for row in by_rows.collect()] == numbered(250)
    narrow = reading(spark, standalone, topic).schema("entry_index bigint, value binary").load()
    assert [row.entry_index for row in narrow.collect()] == list(range(250))


def test_parts_of_a_topic(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    fill(standalone, topic, numbered(30), batching_enabled=False)
    frame = reading(spark, standalone, topic).load().orderBy("entry_index")
    rows = frame.selectExpr("message_id", "unix_millis(publish_time) AS published").collect()
    places = [":".join(row.message_id.split(":")[:2]) for row in rows]
    offsets = {
        "startingOffsets": json.dumps({topic: {"0": places[10]}}),
        "endingOffsets": json.dumps({topic: {"0": places[20]}}),
    }
    assert values_of(reading(spark, standalone, topic, **offsets).load()) == numbered(10, 10)
    moment = str(rows[25].published)
    since = values_of(reading(spark, standalone, topic, startingTimestamp=moment).load())
    until = values_of(reading(spark, standalone, topic, endingTimestamp=moment).load())
    assert until + since == numbered(30)
    assert values_of(reading(spark, standalone, topic, startingTimestamp="-1h").load()) == numbered(30)
    assert values_of(reading(spark, standalone, topic, startingOffsets="latest").load()) == []


def test_many_topics_over_http(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    for suffix in ("a", "b", "x"):
        fill(standalone, f"{topic}-{suffix}", [f"in {suffix}"])
    options = {"service.url": standalone.http_url, "topicsPattern": f"{topic}-[ab]"}
    frame = spark.read.format("magnetar").options(**options).load()
    assert sorted(values_of(frame)) == ["in a", "in b"]
    listed = {"service.url": standalone.http_url, "topics": f"{topic}-x,{topic}-b"}
    assert sorted(values_of(spark.read.format("magnetar").options(**listed).load())) == ["in b", "in x"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startOffsets": "earliest"}, "unknown option 'startoffsets'"),
        ({"startingOffsets": '{"TOPIC": {"0": "0:0"}}'}, "data loss"),
        ({"topic": "there-is-none"}, "there is no such topic"),
        ({"admin.url": "http://127.0.0.1:9"}, "is this the admin URL"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, standalone: StandaloneProcess, options: dict[str, str], reason: str
) -> None:
    topic = new_topic(standalone)
    fill(standalone, topic, ["x"])
    given = {key: value.replace("TOPIC", topic) for key, value in options.items()}
    with pytest.raises(Exception, match=reason):  # Spark has classes of its own for what Python raises.
        spark.read.format("magnetar").options(**{**connection(standalone, topic), **given}).load().collect()


def run_stream(
    spark: SparkSession, options: dict[str, str], folder: Path, **more: Any
) -> list[dict[str, Any]]:
    """Reads what is available into Parquet; the progress of each batch that had rows."""
    stream = spark.readStream.format("magnetar").options(**options).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    assert query.awaitTermination(600)
    return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]


def test_stream_with_limits_restarts_and_a_subscription(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    topic = new_topic(standalone, partitions=2)
    options = {
        **connection(standalone, topic),
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": "120",
        "subscription": "job",
    }
    fill(standalone, topic, numbered(300))
    first = run_stream(spark, options, tmp_path)
    assert [batch["numInputRows"] <= 120 for batch in first] == [True] * len(first)
    assert len(first) >= 3
    assert sum(batch["numInputRows"] for batch in first) == 300
    partition = f"persistent://public/default/{topic}-partition-1"
    assert first[-1]["sources"][0]["endOffset"][partition].count("@") == 1
    # More rows and one more partition come while the query is down.
    set_partitions(standalone, topic, 3, method="POST")
    fill(standalone, topic, numbered(200, 300))
    second = run_stream(spark, options, tmp_path)
    assert sum(batch["numInputRows"] for batch in second) == 200
    assert run_stream(spark, options, tmp_path) == []
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(values_of(rows)) == numbered(500)
    with urlopen(
        f"{standalone.http_url}/admin/v2/persistent/public/default/{topic}-partition-0/stats"
    ) as answer:
        stats = json.load(answer)
    # Spark tells that a batch is done when it plans the next one.
    assert stats["subscriptions"]["job"]["msgBacklog"] <= 120


def test_a_stream_over_partitions_that_come_and_go(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    """One checkpoint over empty partitions that are unloaded, and a topic that is deleted and made again."""
    topic = new_topic(standalone, partitions=2)
    options = {**connection(standalone, topic), "startingOffsets": "earliest", "failOnDataLoss": "false"}
    assert run_stream(spark, options, tmp_path) == []
    for partition in range(2):
        standalone.admin("PUT", f"persistent/public/default/{topic}-partition-{partition}/unload")
    strict = {**options, "failOnDataLoss": "true"}
    fill(standalone, topic, numbered(10))
    assert sum(batch["numInputRows"] for batch in run_stream(spark, strict, tmp_path)) == 10
    standalone.admin("DELETE", f"persistent/public/default/{topic}/partitions?force=true")
    assert run_stream(spark, options, tmp_path) == []
    set_partitions(standalone, topic, 1, method="PUT")
    fill(standalone, topic, numbered(5, 10))
    assert sum(batch["numInputRows"] for batch in run_stream(spark, options, tmp_path)) == 5
    assert sorted(values_of(spark.read.parquet(str(tmp_path / "rows")))) == numbered(15)


def test_stream_by_bytes(spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path) -> None:
    topic = new_topic(standalone)
    fill(standalone, topic, numbered(400), batching_enabled=False)
    options = {**connection(standalone, topic), "startingOffsets": "earliest", "maxBytesPerTrigger": "15000"}
    batches = run_stream(spark, options, tmp_path)
    assert len(batches) > 1
    assert sum(batch["numInputRows"] for batch in batches) == 400
    assert sorted(values_of(spark.read.parquet(str(tmp_path / "rows")))) == numbered(400)


def test_broken_values_are_rescued_and_sent_to_dead_letters(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    topic, dead = new_topic(standalone), new_topic(standalone)
    bodies = ['{"id":1}', "poison", '{"id":2}', "{"]
    fill(standalone, topic, bodies)
    asked = {
        "valueFormat": "json",
        "valueSchema": '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}',
        "mode": "permissive",
        "columnNameOfCorruptRecord": "_corrupt_record",
    }
    frame = reading(spark, standalone, topic, **asked).load()
    found = {(row.value and row.value.id, row._corrupt_record) for row in frame.collect()}
    assert found == {(1, None), (2, None), (None, b"poison"), (None, b"{")}
    # Asked for alone, and below a filter on what it holds.
    assert frame.filter("_corrupt_record IS NOT NULL").select("_corrupt_record").count() == 2
    stream = (
        spark.readStream.format("magnetar")
        .options(**connection(standalone, topic), **asked, deadLetterTopic=dead)
        .option("startingOffsets", "earliest")
        .load()
        .select("value.id")
        .writeStream.format("memory")
        .queryName("sound")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert sorted(row.id for row in spark.table("sound").collect() if row.id is not None) == [1, 2]
    letters = reading(spark, standalone, dead).load().orderBy("value").collect()
    assert [bytes(row.value) for row in letters] == [b"poison", b"{"]
    for row in letters:
        assert row.properties["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        assert "cannot be read as JSON" in row.properties["EXCEPTION"]
