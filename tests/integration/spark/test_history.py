"""Years of history and a live tail as one table: files for what was offloaded, the broker for the rest."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.arrow.columns import COLUMN_TYPES, EXTRA_TYPES
from magnetar.spark.source import MagnetarSource
from magnetar.tables import broker_entries
from magnetar.tables.stretches import HistoryFile
from support.history_topics import KEEP_EVERYTHING, HistoryTopic
from support.spark_queries import (
    MicroBatches,
    Row,
    batch_rows,
    options,
    pieces,
    plain,
    publish,
    rows_of,
    schema_of,
)
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.one_process("history")]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that keeps everything, with a folder as its store."""
    with StandaloneProcess(tmp_path_factory.mktemp("keeper"), environment=KEEP_EVERYTHING) as process:
        yield process


def topic_of(keeper: StandaloneProcess, name: str, ledgers: int = 2) -> HistoryTopic:
    topic = HistoryTopic(keeper, f"persistent://public/default/{name}")
    for _ in range(ledgers):
        topic.fill_ledger(200)
    return topic


def numbers(rows: list[Row]) -> list[int]:
    return [int(row["properties"][0][1]) for row in rows]


def in_files(partitions: list[Any]) -> list[bool]:
    return [stretch.file is not None for each in partitions for stretch in each.stretches]


def test_files_and_the_broker_give_the_same_rows(
    keeper: StandaloneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every column, from both; what is offloaded is not asked of the broker."""
    topic = topic_of(keeper, "same")
    more = {"columns": ",".join((*COLUMN_TYPES, *EXTRA_TYPES))}
    before = batch_rows(keeper, topic.topic, **more)
    assert numbers(before) == list(range(400))
    topic.offload()
    publish(keeper, topic.topic, [plain("tail")])
    assert batch_rows(keeper, topic.topic, history="broker", **more)[:400] == before
    source = MagnetarSource(options(keeper, topic.topic, **more))
    reader = source.reader(schema_of(source))
    partitions = reader.partitions()
    assert in_files(partitions) == [True, True, False]
    asked = []
    from_broker = broker_entries.read_range

    def read_range(client: Any, name: Any, start: Any, end: Any, **limits: Any) -> Any:
        asked.append((start, end))
        return from_broker(client, name, start, end, **limits)

    monkeypatch.setattr(broker_entries, "read_range", read_range)
    rows = rows_of(pickle.dumps(reader), partitions)
    assert rows[:400] == before
    assert rows[400]["value"] == b"tail"
    assert [(start.entry_id, end.entry_id) for start, end in asked] == [(0, 1)]


def test_parts_of_files(keeper: StandaloneProcess) -> None:
    topic = topic_of(keeper, "parts")
    before = batch_rows(keeper, topic.topic)
    topic.offload()
    for pieces_of_it in (2, 5, 13):
        assert batch_rows(keeper, topic.topic, minPartitions=str(pieces_of_it)) == before
    wanted = [row for row in before if row["key"] == b"key 3"]
    assert batch_rows(keeper, topic.topic, keys="key 3") == wanted
    assert batch_rows(keeper, topic.topic, limit="150") == before[:150]


def test_offloading_between_planning_and_reading(keeper: StandaloneProcess) -> None:
    """A range that was the broker's when it was planned is read once, although it lies in a file now."""
    topic = topic_of(keeper, "between")
    source = MagnetarSource(options(keeper, topic.topic))
    reader = source.reader(schema_of(source))
    planned = reader.partitions()
    assert in_files(planned) == []
    topic.offload()
    again = reader.partitions()
    assert in_files(again) == [True, True]
    topic.delete_local()
    for partitions in (planned, again, reader.partitions()):
        assert numbers(rows_of(pickle.dumps(reader), partitions)) == list(range(400))


def test_a_stream_over_the_seam(keeper: StandaloneProcess) -> None:
    """Offloading goes on while a query reads: nothing is lost and nothing is there twice."""
    topic = topic_of(keeper, "seam", ledgers=1)
    query = MicroBatches(keeper, topic.topic, startingOffsets="earliest", maxRowsPerTrigger="120")
    found = numbers(query.batch())
    for _ in range(2):
        topic.offload()
        topic.fill_ledger(200)
        found += numbers(query.batch())
    for rows in query.drain():
        found += numbers(rows)
    assert found == list(range(600))


def test_a_file_that_went_away_is_read_by_the_broker(
    keeper: StandaloneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(keeper, "gone", ledgers=1)
    topic.offload()
    source = MagnetarSource(options(keeper, topic.topic))
    reader = source.reader(schema_of(source))
    partitions = reader.partitions()

    def open_nothing(file: HistoryFile) -> None:
        raise FileNotFoundError(file.name)

    monkeypatch.setattr("magnetar.tables.history._open", open_nothing)
    assert numbers(rows_of(pickle.dumps(reader), partitions)) == list(range(200))


def test_large_messages_and_encrypted_ones_in_files(keeper: StandaloneProcess) -> None:
    name = "persistent://public/default/odd"
    sealed = plain("sealed")
    sealed[0].encryption_keys.add(key="k", value=b"v")
    one = pieces("A" * 1000, of=3, uuid="one")
    publish(keeper, name, [plain("a"), one[0], sealed, one[1]])
    topic = HistoryTopic(keeper, name)
    keeper.admin("PUT", f"{topic.path}/unload")
    topic.offload()
    publish(keeper, name, [one[2], plain("z")])
    for parts in ("1", "3", "6"):
        rows = batch_rows(keeper, name, encrypted="bytes", minPartitions=parts)
        assert [row["value"] for row in rows] == [b"a", b"sealed", b"A" * 1000, b"z"]
