"""The sink's promise, with a driver that dies at every place where it talks to the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from magnetar.arrow.decode import Decoder
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.connection import Connection
from magnetar.client.options import ClientOptions
from magnetar.client.reader import last_position, read_range
from magnetar.spark.commit_log import CommitLog, Done, Manifest, StagedTask
from magnetar.spark.encode import EntryEncoder
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.options import WriteOptions
from magnetar.spark.publishing import Publisher
from magnetar.spark.sink import Sink, deduplicate, target_partitions
from magnetar.spark.sink_topics import commits_topic, staging_topic
from magnetar.spark.staged import StagedEntry
from magnetar.spark.staging import StagingWriter, read_staged
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process

SINK = "query-1"


class DriverDiedError(Exception):
    """Stands for the end of the process."""


def client_of(standalone: StandaloneProcess) -> Client:
    options = ClientOptions(retry_timeout_s=20, request_timeout_s=20)
    return Client(standalone.broker_url, options, admin_url=standalone.http_url)


def options_of(standalone: StandaloneProcess, topic: str, **more: str) -> WriteOptions:
    given = {"service.url": standalone.broker_url, "admin.url": standalone.http_url, "topic": topic}
    return WriteOptions.parse({**given, **more})


def new_topic(standalone: StandaloneProcess, partitions: int = 0) -> str:
    topic = f"persistent://public/default/sink-{uuid4().hex[:8]}"
    if partitions:
        standalone.admin("PUT", f"{topic.replace('://', '/')}/partitions", partitions)
    return topic


def entries_of(values: Sequence[str], partitions: int, *, rows_max: int = 3) -> list[StagedEntry]:
    encoder = EntryEncoder(partitions, batching="partition", rows_max=rows_max, bytes_max=1000, compression=0)
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.string()),
            "key": pa.array([value[-1] for value in values], pa.string()),
        }
    )
    return [*encoder.encode(batch), *encoder.finish()]


def block_of(entries: Sequence[StagedEntry]) -> bytes:
    return b"".join(entry.encode() for entry in entries)


def values_in(client: Client, topic: str) -> list[str]:
    """Everything in the topic, partition by partition."""
    found: list[str] = []
    for partition in target_partitions(client, TopicName.parse(topic)).values():
        last = last_position(client, partition)
        if last is None:
            continue
        decoder = Decoder(partition, ("value",))
        for columns in read_range(client, partition, EARLIEST, Position(last.ledger_id, last.entry_id + 1)):
            for batch in decoder.decode(columns):
                found += [value.decode() for value in batch.column(0).to_pylist()]
    return found


def stage(client: Client, topic: str, entries: Sequence[StagedEntry], *, per_message: int = 2) -> StagedTask:
    writer = StagingWriter(client, staging_topic(TopicName.parse(topic), SINK))
    for at in range(0, len(entries), per_message):
        writer.write(block_of(entries[at : at + per_message]))
    return writer.finish()


def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> Callable[[], int]:
    """The process dies at its `at`-th write to a broker, before or after the bytes left."""
    writes = count(1)
    state = {"dead": False, "made": 0}
    real = Connection.write

    def write(self: Connection, data: Any) -> None:
        if state["dead"]:
            raise DriverDiedError
        number = next(writes)
        state["made"] = number
        if number == at:
            state["dead"] = True
            if after:
                real(self, data)
            raise DriverDiedError
        real(self, data)

    monkeypatch.setattr(Connection, "write", write)
    return lambda: state["made"]


@pytest.mark.parametrize(("partitions", "after"), [(0, False), (0, True), (3, True)])
def test_a_driver_that_dies_at_any_write(
    standalone: StandaloneProcess, monkeypatch: pytest.MonkeyPatch, partitions: int, after: bool
) -> None:
    values = [f"row-{number}" for number in range(40)]
    at = 0
    while True:
        at += 1
        topic = new_topic(standalone, partitions)
        options = options_of(standalone, topic)
        with client_of(standalone) as client:
            Sink(client, options, SINK).commit(0, [block_of(entries_of(["start"], partitions))], [])
            first = stage(client, topic, entries_of(values[20:], partitions))
            second = stage(client, topic, entries_of(values[:25], partitions))
        with monkeypatch.context() as patch, client_of(standalone) as client:
            dying(patch, at, after=after)
            try:
                blocks = [block_of(entries_of(values[:20], partitions))]
                Sink(client, options, SINK).commit(1, blocks, [first])
                survived = True
            except DriverDiedError:
                survived = False
        # The batch is run again, by other tasks that cut it in another way and order.
        with client_of(standalone) as client:
            again = [block_of(entries_of(values[:24:-1], partitions, rows_max=7))]
            Sink(client, options, SINK).commit(1, again, [second])
            Sink(client, options, SINK).commit(2, [block_of(entries_of(["end"], partitions))], [])
            found = values_in(client, topic)
        assert Counter(found) == Counter(["start", *values, "end"]), f"died at write {at}"
        if survived:
            break
    assert at > 10, "the sweep has to pass every step"


def test_the_first_manifest_counts(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        for values in (["a", "b"], ["c"], ["d", "e"]):
            Sink(client, options, SINK).commit(0, [block_of(entries_of(values, 0))], [])
        assert values_in(client, topic) == ["a", "b"]
        Sink(client, options, SINK).commit(1, [block_of(entries_of(["f"], 0))], [])
        # A driver that was overtaken commits its old batch.
        Sink(client, options, SINK).commit(0, [block_of(entries_of(["g"], 0))], [])
        assert values_in(client, topic) == ["a", "b", "f"]


def test_two_logs_race_for_a_manifest(standalone: StandaloneProcess) -> None:
    topic = commits_topic(TopicName.parse(new_topic(standalone)), SINK)
    with client_of(standalone) as client:
        deduplicate(client, topic)
        logs = [CommitLog(client, topic, SINK) for _ in range(2)]
        # Both looked before either wrote.
        assert [log.last() for log in logs] == [None, None]
        assert logs[0].append(Manifest(5, b"mine"))
        logs[0].close()
        assert not logs[1].append(Manifest(5, b"yours"))
        newest = logs[1].last()
        assert newest is not None
        assert newest[0] == Manifest(5, b"mine")
        assert logs[1].append(Done(5))
        logs[1].close()


def test_a_broker_that_forgot_the_producer(standalone: StandaloneProcess) -> None:
    """Without deduplication the broker knows nothing: the target itself tells what is there."""
    topic = new_topic(standalone)
    entries = entries_of([f"row-{number}" for number in range(30)], 0)
    with client_of(standalone) as client:
        partitions = target_partitions(client, TopicName.parse(topic))
        before = {str(partition): None for partition in partitions.values()}
        half = Publisher(client, partitions, SINK, 4, None)
        half.publish(entries[:6])
        half.close()
        rest = Publisher(client, partitions, SINK, 4, before)
        assert rest.publish(entries) == 12
        rest.close()
        assert values_in(client, topic) == [f"row-{number}" for number in range(30)]


def test_other_attempts_are_skipped_in_staging(standalone: StandaloneProcess) -> None:
    topic = TopicName.parse(new_topic(standalone))
    with client_of(standalone) as client:
        staging = staging_topic(topic, SINK)
        writers = [StagingWriter(client, staging) for _ in range(3)]
        # Large enough to leave at once, so that the tasks' messages mix.
        values = [[f"{name}-{number}" + "x" * 300_000 for number in range(3)] for name in "abc"]
        made = [entries_of(each, 0) for each in values]
        for number in range(3):
            for writer, entries in zip(writers, made, strict=True):
                writer.write(entries[number].encode())
        tasks = [writer.finish() for writer in writers]
        found = list(read_staged(client, staging, [tasks[0], tasks[2]]))
        assert [entry for entry in found if entry in made[0]] == made[0]
        assert [entry for entry in found if entry in made[2]] == made[2]
        assert len(found) == 6
        lacking = StagedTask(tasks[0].producer, tasks[0].first, tasks[0].last, 4)
        with pytest.raises(SparkSourceError, match="lacks 1 messages"):
            list(read_staged(client, staging, [lacking]))


def test_many_inline_rows_are_staged_by_the_driver(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    big = [f"{number:04d}" + "x" * 100_000 for number in range(40)]
    with client_of(standalone) as client:
        blocks = [block_of(entries_of([value], 0)) for value in big]
        Sink(client, options_of(standalone, topic), SINK).commit(0, blocks, [])
        assert values_in(client, topic) == big
