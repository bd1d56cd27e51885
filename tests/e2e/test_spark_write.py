"""Tables into topics, each row once."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import fastavro
import pulsar
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf

from magnetar.spark import batches_to
from support.spark_topics import (
    connection,
    fill,
    new_topic,
    numbered,
    official_client,
    reading,
    values_of,
)
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process]

DEADLINE_S = 180
"""For a query of a few batches, which takes seconds."""


def failing_once(marker: Path) -> object:
    """A function that fails in the middle of a task until the marker is there."""
    path = str(marker)

    def check(value: bytes) -> bytes:
        from pathlib import Path as WorkerPath

        if value.endswith(b"77") and not WorkerPath(path).exists():
            WorkerPath(path).touch()
            raise RuntimeError("injected failure")
        return value

    return udf(check, "binary", useArrow=False)


def run_copy(
    spark: SparkSession, standalone: StandaloneProcess, names: tuple[str, str], folder: Path, **options: str
) -> None:
    """Copies what is available from one topic to another, with a task that fails on its first try."""
    source, target = names
    given = {**connection(standalone, source), "startingOffsets": "earliest", "maxRowsPerTrigger": "100"}
    rows = spark.readStream.format("magnetar").options(**given).load()
    check = failing_once(folder / "failed")
    chosen = rows.select(check(col("value")).alias("value"), col("key"), "key_is_string", "event_time")  # type: ignore[operator]  # udf
    writer = chosen.writeStream.format("magnetar").options(**connection(standalone, target), **options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


@pytest.mark.parametrize("inline_bytes_max", ["262144", "1"], ids=["inline", "staged"])
def test_once_with_failing_tasks_and_repeated_commits(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path, inline_bytes_max: str
) -> None:
    source, target = new_topic(standalone, partitions=2), new_topic(standalone, partitions=2)
    options = {"inlineBytesMax": inline_bytes_max, "maxRowsPerEntry": "7"}
    fill(standalone, source, numbered(250))
    run_copy(spark, standalone, (source, target), tmp_path, **options)
    assert (tmp_path / "failed").exists()
    assert sorted(values_of(reading(spark, standalone, target).load())) == numbered(250)
    # The driver dies after the sink has committed and before Spark has noted it: the batch is run again.
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    fill(standalone, source, numbered(50, 250))
    run_copy(spark, standalone, (source, target), tmp_path, **options)
    found = reading(spark, standalone, target).load()
    assert Counter(values_of(found)) == Counter(numbered(300))
    # Keys, and their order in a partition, are as they came.
    for row in found.groupBy("key").agg({"partition": "min", "value": "count"}).collect():
        assert row["count(value)"] == 30
    assert found.select("key", "partition").distinct().count() == 10
    values = [(row.partition, bytes(row.key), bytes(row.value)) for row in found.collect()]
    by_key: dict[tuple[int, bytes], list[bytes]] = {}
    for partition, key, value in values:
        by_key.setdefault((partition, key), []).append(value)
    assert all(held == sorted(held) for held in by_key.values())


def frame_of(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    return spark.createDataFrame(
        [(value, value[-1]) for value in numbered(count, first)], "value string, key string"
    )


def test_batch_write_reaches_the_official_client(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    frame = frame_of(spark, 60).repartition(3)
    options = {"batching": "key", "compression": "zlib", **connection(standalone, topic)}
    frame.write.format("magnetar").options(**options).mode("append").save()
    with official_client(standalone) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        messages = [consumer.receive(10_000) for _ in range(60)]
    assert sorted(message.data().decode() for message in messages) == numbered(60)
    assert all(message.partition_key() == message.data().decode()[-1] for message in messages)


def test_a_named_batch_write_can_be_run_again(spark: SparkSession, standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    for _ in range(2):
        writer = frame_of(spark, 40).repartition(3).write.format("magnetar")
        writer.options(**connection(standalone, topic), writeId="load-2026-01").mode("append").save()
    writer = frame_of(spark, 10, 40).write.format("magnetar").options(**connection(standalone, topic))
    writer.option("delivery", "at_least_once").mode("append").save()
    assert sorted(values_of(reading(spark, standalone, topic).load())) == numbered(50)


@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_columns_become_values_of_the_topics_schema(
    spark: SparkSession, standalone: StandaloneProcess, value_format: str
) -> None:
    topic = new_topic(standalone, partitions=2)
    frame = spark.range(20).selectExpr("id", "concat('n', id) AS name", "id % 3 = 0 AS third", "'k' AS key")
    for chosen in (frame, frame.selectExpr("struct(id, name, third) AS value", "key")):
        options = {**connection(standalone, topic), "valueFormat": value_format}
        chosen.write.format("magnetar").options(**options).mode("append").save()
    with official_client(standalone) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        messages = [consumer.receive(10_000) for _ in range(40)]
    stored = standalone.admin("GET", f"schemas/public/default/{topic}/schema")
    assert stored["type"] == value_format.upper()
    definition = json.loads(stored["data"])
    rows = [
        json.loads(message.data())
        if value_format == "json"
        else fastavro.schemaless_reader(io.BytesIO(message.data()), definition, definition)
        for message in messages
    ]
    expected = [{"id": n, "name": f"n{n}", "third": n % 3 == 0} for n in range(20)] * 2
    assert sorted(rows, key=lambda row: row["id"]) == sorted(expected, key=lambda row: int(row["id"]))
    versions = {row.schema_version for row in reading(spark, standalone, topic).load().collect()}
    assert len(versions) == 1
    wrong = frame.selectExpr("id % 2 = 0 AS id").write.format("magnetar")
    with pytest.raises(Exception, match="IncompatibleSchema"):
        wrong.options(**connection(standalone, topic), valueFormat=value_format).mode("append").save()


def test_rows_name_their_topic(spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path) -> None:
    """A stream to several topics, with a batch that is run again."""
    source, first, second = (new_topic(standalone) for _ in range(3))
    fill(standalone, source, numbered(60))
    for _ in range(2):
        rows = spark.readStream.format("magnetar").options(**connection(standalone, source))
        named = rows.option("startingOffsets", "earliest").load()
        chosen = named.selectExpr("value", f"if(ascii(key) % 2 = 0, '{first}', '{second}') AS topic")
        given = {**connection(standalone, ""), "checkpointLocation": str(tmp_path)}
        writer = chosen.writeStream.format("magnetar").options(**given)
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
        newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    even, odd = (values_of(reading(spark, standalone, topic).load()) for topic in (first, second))
    assert sorted(even) == [value for value in numbered(60) if int(value[-1]) % 2 == 0]
    assert sorted(odd) == [value for value in numbered(60) if int(value[-1]) % 2 == 1]


def test_batches_of_a_function_are_numbered(spark: SparkSession, standalone: StandaloneProcess) -> None:
    """`foreachBatch` may call again with the number of a batch that it has written."""
    topic = new_topic(standalone)
    for number in (0, 0, 1, 1):
        writer = frame_of(spark, 20, 20 * number).write.format("magnetar")
        options = {**connection(standalone, topic), "txnAppId": "copies", "txnVersion": str(number)}
        writer.options(**options).mode("append").save()
    assert sorted(values_of(reading(spark, standalone, topic).load())) == numbered(40)


def test_two_writes_of_a_batch_need_names_of_their_own(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    """Two writes under one name would be taken for a repetition, and the second would vanish."""
    topic = new_topic(standalone)
    named = {**connection(standalone, topic), "writeId": "copies", "batchId": "0"}
    frame_of(spark, 20).write.format("magnetar").options(**named).mode("append").save()
    with pytest.raises(Exception, match="writeId of its own"):
        frame_of(spark, 20, 20).write.format("magnetar").options(**named).mode("append").save()


def test_updates_by_a_function_whose_writes_are_named_by_the_query(
    spark: SparkSession, standalone: StandaloneProcess, tmp_path: Path
) -> None:
    """Totals in the mode update, and marks, to one topic, from one function, which is run twice."""
    source, target = new_topic(standalone), new_topic(standalone)
    fill(standalone, source, numbered(20))
    to = {name: text for name, text in connection(standalone, target).items() if name != "topic"}
    totals = batches_to(target, options=to)
    marks = batches_to(target, name="marks", options=to)

    def both(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            totals(frame, batch_id)
            marks(frame.selectExpr("key", "'mark' AS value"), batch_id)

    counted = (
        spark.readStream.format("magnetar")
        .options(**connection(standalone, source), startingOffsets="earliest")
        .load()
        .groupBy("key")
        .count()
        .selectExpr("key", "CAST(count AS STRING) AS value")
    )
    query = (
        counted.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(both)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    assert sorted(values_of(reading(spark, standalone, target).load())) == ["2"] * 10 + ["mark"] * 10


def test_what_an_unnamed_write_staged_goes_with_it(
    spark: SparkSession, standalone: StandaloneProcess
) -> None:
    topic = new_topic(standalone)
    options = {**connection(standalone, topic), "inlineBytesMax": "1"}
    frame_of(spark, 50).write.format("magnetar").options(**options).mode("append").save()
    assert sorted(values_of(reading(spark, standalone, topic).load())) == numbered(50)
    stats = standalone.admin("GET", f"persistent/public/default/{topic}-magnetar-sink-batch-staging/stats")
    assert stats["subscriptions"] == {}


@pytest.mark.parametrize(
    ("expression", "mode", "reason"),
    [
        ("id", "append", "column `id bigint` cannot be written"),
        ("CAST(id AS string) AS key", "append", "column `value` is needed"),
        ("CAST(id AS string) AS value", "overwrite", "cannot be overwritten"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, standalone: StandaloneProcess, expression: str, mode: str, reason: str
) -> None:
    options = connection(standalone, new_topic(standalone))
    writer = spark.range(3).selectExpr(expression).write.format("magnetar").options(**options)
    with pytest.raises(Exception, match=reason):  # Spark has classes of its own for what Python raises.
        writer.mode(mode).save()
