"""`magnetar.spark.table`: history by Spark's own reader, the rest by the source, and never a row of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.client.client import Client
from magnetar.spark import table
from magnetar.spark.errors import OptionError
from magnetar.tables import history
from support.files import files_in
from support.history_topics import DEADLINE_S, KEEP_EVERYTHING, HistoryTopic
from support.lake_history import rows_of as lake_rows
from support.lake_history import wait_for_files
from support.spark_queries import batched, pieces, plain, publish
from support.standalone import StandaloneProcess, wait_until
from support.transactional_history import STORIES, Writer, write_ledgers

pytestmark = [pytest.mark.spark, pytest.mark.process]

ALL = ",".join((*COLUMN_TYPES, *EXTRA_TYPES))


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that keeps everything, with a folder as its store, which has a space in its name."""
    folder = tmp_path_factory.mktemp("keeper") / "its data"
    folder.mkdir()
    with StandaloneProcess(folder, environment=KEEP_EVERYTHING) as process:
        yield process


def where(keeper: StandaloneProcess, **more: str) -> dict[str, str]:
    return {"service.url": keeper.http_url, **more}


def rows_of(frame: DataFrame) -> list[Row]:
    """In the order of messages."""
    return sorted(frame.collect(), key=lambda row: (row.partition, row.entry_index, row.message_id))


def by_source(spark: SparkSession, keeper: StandaloneProcess, topic: str, **more: str) -> DataFrame:
    return spark.read.format("magnetar").options(**where(keeper, topics=topic, **more)).load()


def plan_of(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


def files_of(topic: HistoryTopic) -> list[Path]:
    return [
        Path(unquote(urlsplit(ledger["offloadedTo"]["url"]).path)) / segment["name"]
        for ledger in topic.ledgers()
        for segment in ledger.get("offloadedTo", {}).get("segments", ())
    ]


def odd_ledger(keeper: StandaloneProcess, topic: HistoryTopic, number: int) -> None:
    """Entries of every kind, and a new ledger."""
    sealed = plain(f"sealed {number}")
    sealed[0].encryption_keys.add(key="k", value=b"v")
    told = plain(f"told {number}", partition_key="k", event_time=5, ordering_key=b"o")
    told[0].properties.add(key="a", value="1")
    told[0].properties.add(key="a", value="2")
    versioned = plain(f"of a version {number}", schema_version=b"\0" * 8, replicated_from="there")
    nothing = plain("", null_value=True, partition_key="gone")
    kinds = {
        0: [plain(f"plain {number}"), batched("a", "b"), told, versioned],
        1: [batched("a", None, "c"), nothing, plain("marker", marker_type=10), told],
        2: [plain("a"), *pieces("A" * 1000, of=3, uuid=f"of {number}"), plain("z"), sealed],
    }
    publish(keeper, topic.topic, kinds[number % 3])
    keeper.admin("PUT", f"{topic.path}/unload")


def test_rows_are_those_of_the_source(
    spark: SparkSession, keeper: StandaloneProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """All kinds of entries, in files that Spark reads as they are, that it looks at, and that it cannot read;
    while offloading goes on between the call and the query."""
    topic = HistoryTopic(keeper, "persistent://public/default/odd")
    for number in range(6):
        odd_ledger(keeper, topic, number)
        if number in (2, 4):
            topic.offload()
    options = where(keeper, columns=ALL, encrypted="bytes")
    frame = table(spark, topic.topic, options)
    plan = plan_of(frame, capsys)
    assert plan.count("FileScan parquet") == 2
    assert plan.count("BatchScan magnetar") == 1
    wanted = by_source(spark, keeper, topic.topic, columns=ALL, encrypted="bytes")
    rows = rows_of(wanted)
    assert frame.schema == wanted.schema
    assert rows_of(frame) == rows
    topic.offload()
    topic.delete_local()
    odd_ledger(keeper, topic, 6)
    assert rows_of(frame) == rows, "what was planned is read once, wherever it lies now"
    entries = list(dict.fromkeys(row.message_id.rsplit(":", 2)[0] for row in rows))
    for first, stop in ((1, len(entries) - 2), (4, 9)):
        bounds = {
            "startingOffsets": json.dumps({topic.topic: {"0": entries[first]}}),
            "endingOffsets": json.dumps({topic.topic: {"0": entries[stop]}}),
        }
        part = rows_of(table(spark, topic.topic, {**options, **bounds}))
        chosen = entries[first:stop]
        assert part == [row for row in rows if row.message_id.rsplit(":", 2)[0] in chosen]
    some = table(spark, topic.topic, {**options, "keys": "k"}).where("partition = -1")
    assert [row.value for row in rows_of(some)] == [
        row.value for row in rows_of(by_source(spark, keeper, topic.topic, encrypted="bytes", keys="k"))
    ]


def test_spark_prunes_columns_and_row_groups(
    spark: SparkSession, keeper: StandaloneProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = HistoryTopic(keeper, "persistent://public/default/pruned")
    topic.fill_ledger(200)
    topic.offload()
    frame = table(spark, topic.topic, service_url=keeper.http_url, valueFormat="string")
    assert dict(frame.dtypes)["value"] == "string"
    plan = plan_of(
        frame.where("key = CAST('key 3' AS BINARY) AND publish_time > '2020-01-01'").select("value"), capsys
    )
    assert "magnetar" not in plan.split("Location")[0], "all of it lies in files"
    for pushed in (
        "EqualTo(key,",
        "GreaterThan(publish_time,",
        "ReadSchema: struct<publish_time:timestamp,key",
    ):
        assert pushed in plan
    assert "properties" not in plan
    assert "FileScan" not in plan_of(frame.where("topic = 'another'"), capsys)
    assert frame.where("key = CAST('key 3' AS BINARY)").count() == sum(
        number % 17 == 3 for number in range(200)
    )


def test_files_that_go_away(
    spark: SparkSession,
    keeper: StandaloneProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error that names the file, whatever the session says of such files; those that cannot be read where
    the call is made are left to the source."""
    topic = HistoryTopic(keeper, "persistent://public/default/away")
    for _ in range(2):
        topic.fill_ledger(40)
    topic.offload()
    frame = table(spark, topic.topic, where(keeper))
    assert frame.count() == 80
    first, _ = files_of(topic)
    aside = first.with_suffix(".away")
    first.rename(aside)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    with pytest.raises(Exception, match=first.name):  # Spark has classes of its own for this.
        frame.count()
    spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    aside.rename(first)
    assert frame.count() == 80
    monkeypatch.setattr(history, "traits_of", lambda file: None)
    frame = table(spark, topic.topic, where(keeper))
    assert "FileScan" not in plan_of(frame, capsys)
    assert frame.count() == 80


def test_files_that_became_one(spark: SparkSession, tmp_path: Path) -> None:
    """A file of several ledgers, all of it and a part; an older table says that its files are gone."""
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": ""}
    with StandaloneProcess(tmp_path / "s", environment=environment) as process:
        topic = HistoryTopic(process)
        for _ in range(3):
            topic.fill_ledger(40)
        topic.offload()
        topic.delete_local()
        before = table(spark, topic.topic, where(process))
        rows = rows_of(before)
        process.admin("POST", f"{topic.path}/lake/merge")
        wait_until(lambda: len(set(files_of(topic))) == 1, DEADLINE_S, "merged")
        files = process.data_dir / "offloaded"
        wait_until(lambda: len(files_in(files, "*.parquet")) == 1, DEADLINE_S, "the small files deleted")
        frame = table(spark, topic.topic, where(process))
        assert len(frame.inputFiles()) == 1
        assert rows_of(frame) == rows
        middle = topic.ledgers()[1]["ledgerId"]
        end = json.dumps({topic.topic: {"0": f"{middle}:7"}})
        part = rows_of(table(spark, topic.topic, where(process, endingOffsets=end)))
        assert part == rows[: len(part)]
        assert rows[len(part)].message_id.startswith(f"{middle}:7:")
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):  # Spark has classes of its own for this.
            before.count()


def streamed(
    spark: SparkSession, topic: HistoryTopic, folder: Path, **more: str
) -> tuple[list[int], list[Row]]:
    """Rows of each batch of a query that reads up to here from its checkpoint on, and all it ever had."""
    stream = spark.readStream.format("magnetar").options(**where(topic.process, topics=topic.topic, **more))
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    assert query.awaitTermination(DEADLINE_S)
    batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    return batches, rows_of(spark.read.parquet(str(folder / "rows")))


def test_history_without_messages_of_aborted_transactions(spark: SparkSession, tmp_path: Path) -> None:
    """Batch, stream and table have exactly what is committed: from bookies, from files, from a merged file;
    and the Iceberg table has the same. A stream stops in a gap, and goes on when the ledger of it is gone."""
    environment = KEEP_EVERYTHING | {"MAGNETAR_LAKE_CATALOG": "", "MAGNETAR_TRANSACTIONS": "true"}
    with StandaloneProcess(tmp_path / "s", environment=environment) as process:
        topic = HistoryTopic(process)

        kept = write_ledgers(topic, STORIES[:2])
        batches, rows = streamed(spark, topic, tmp_path / "whole")
        assert (batches, [bytes(row.value) for row in rows]) == ([len(kept)], kept)
        kept += write_ledgers(topic, STORIES[2:])
        with Client(process.broker_url) as client:
            writer = Writer(client, topic.topic)
            txn = writer.begin()
            writer.publish(2, txn, kept=True)
            batches, rows = streamed(spark, topic, tmp_path / "whole")
            assert (batches, [bytes(row.value) for row in rows]) == ([8], kept), "nothing of what is open"
            writer.end(txn, commit=True)
            kept += writer.kept
            writer.close()
        process.admin("PUT", f"{topic.path}/unload")
        topic.offload()
        topic.delete_local()

        rows = rows_of(by_source(spark, process, topic.topic))
        assert [bytes(row.value) for row in rows] == kept
        assert rows_of(table(spark, topic.topic, where(process))) == rows
        assert streamed(spark, topic, tmp_path / "whole") == ([2], rows)
        # A query whose batches begin and end in gaps: the index of a row counts those that are left out.
        batches, streamed_rows = streamed(spark, topic, tmp_path / "small", maxRowsPerTrigger="10")
        assert (batches, streamed_rows) == ([6, 6, 8, 2], rows)
        assert lake_rows(wait_for_files(topic, 3)) == topic.read()

        process.admin("POST", f"{topic.path}/lake/merge")
        assert lake_rows(wait_for_files(topic, 1)) == topic.read()
        merged = table(spark, topic.topic, where(process))
        assert len(merged.inputFiles()) == 1
        assert rows_of(merged) == rows_of(by_source(spark, process, topic.topic)) == rows
        assert merged.count() == len(kept)


def test_several_topics_and_values_by_schema(spark: SparkSession, keeper: StandaloneProcess) -> None:
    names = [f"persistent://public/default/several-{number}" for number in range(2)]
    for name in names:
        topic = HistoryTopic(keeper, name)
        topic.fill_ledger(20)
        topic.offload()
        publish(keeper, name, [plain("tail")])
    counted = table(spark, ",".join(names), where(keeper)).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counted} == dict.fromkeys(names, 21)
    variants = table(spark, names[0], where(keeper, valueFormat="variant"))
    assert dict(variants.dtypes)["value"] == "variant"
    assert table(spark, "", where(keeper, topicsPattern="several-.*", columns="key")).count() == 42
    assert table(spark, names[0], where(keeper, startingOffsets="latest")).count() == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscription": "s"}, "readStream"),
        ({"maxOffsetsPerTrigger": "5"}, "readStream"),
        ({"limit": "5"}, r"\.limit\(n\)"),
        ({"history": "broker"}, "format"),
        ({"startOffsets": "earliest"}, "unknown option"),
        ({"topic": "another"}, "given"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, keeper: StandaloneProcess, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        table(spark, "t", where(keeper, **options))
