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
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.sink_topics import commits_topic, staging_topic
from magnetar.spark.targets import Targets, target_partitions
from magnetar.spark.write.commit_log import CommitLog, CommitManifest, Done, StagedTask
from magnetar.spark.write.deduplication import deduplicate
from magnetar.spark.write.encode import RowEncoder
from magnetar.spark.write.publisher import Publisher
from magnetar.spark.write.sink import Batch, Sink
from magnetar.spark.write.sink_options import WriteOptions
from magnetar.spark.write.staged import StagedEntry, blocks
from magnetar.spark.write.staging import StagedReader, StagingWriter
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
    encoder = RowEncoder(partitions, batching="partition", rows_max=rows_max, bytes_max=1000, compression=0)
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.string()),
            "key": pa.array([value[-1] for value in values], pa.string()),
        }
    )
    return [*encoder.encode(batch), *encoder.finish()]


def block_of(entries: Sequence[StagedEntry]) -> bytes:
    return b"".join(blocks(entries))


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


def commit(
    client: Client,
    options: WriteOptions,
    number: int,
    *parts: Sequence[StagedEntry] | StagedTask,
    run: str = "",
    rows: int | None = None,
) -> None:
    """The driver's half, as the writer calls it; each of `parts` is what one task made."""
    made = [part if isinstance(part, StagedTask) else block_of(part) for part in parts]
    inline = [entry for part in parts if not isinstance(part, StagedTask) for entry in part]
    topics = {entry.topic or options.topic for entry in inline} or {options.topic}
    partitions = [
        str(partition)
        for topic in sorted(topics)
        for partition in target_partitions(client, TopicName.parse(topic)).values()
    ]
    counted = sum(entry.messages for entry in inline) if rows is None else rows
    Sink(client, options, SINK).commit(Batch(number, made, counted, partitions, run))


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
            commit(client, options, 0, entries_of(["start"], partitions))
            first = stage(client, topic, entries_of(values[20:], partitions))
            second = stage(client, topic, entries_of(values[:25], partitions))
        with monkeypatch.context() as patch, client_of(standalone) as client:
            dying(patch, at, after=after)
            try:
                commit(client, options, 1, entries_of(values[:20], partitions), first, rows=40)
                survived = True
            except DriverDiedError:
                survived = False
        # The batch is run again, by other tasks that cut it in another way and order.
        with client_of(standalone) as client:
            turned = entries_of(values[:24:-1], partitions, rows_max=7)
            commit(client, options, 1, second, turned, rows=40)
            commit(client, options, 2, entries_of(["end"], partitions))
            found = values_in(client, topic)
        assert Counter(found) == Counter(["start", *values, "end"]), f"died at write {at}"
        if survived:
            break
    assert at > 10, "the sweep has to pass every step"


def test_the_first_manifest_counts(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    options = options_of(standalone, topic, deterministic="false")
    with client_of(standalone) as client:
        for values in (["a", "b"], ["c"], ["d", "e"]):
            commit(client, options, 0, entries_of(values, 0))
        assert values_in(client, topic) == ["a", "b"]
        commit(client, options, 1, entries_of(["f"], 0))
        # A driver that was overtaken, or one with an old copy of the checkpoint: its batch 0 is another one.
        with pytest.raises(SparkSourceError, match="has written batch 1: the checkpoint was set back"):
            commit(client, options, 0, entries_of(["g"], 0))
        assert values_in(client, topic) == ["a", "b", "f"]


def test_two_logs_race_for_a_manifest(standalone: StandaloneProcess) -> None:
    topic = commits_topic(TopicName.parse(new_topic(standalone)), SINK)
    with client_of(standalone) as client:
        deduplicate(client, topic)
        logs = [CommitLog(client, topic, SINK) for _ in range(2)]
        # Both looked before either wrote.
        assert [log.last() for log in logs] == [None, None]
        assert logs[0].append(CommitManifest(5, (b"mine",)))
        logs[0].close()
        assert not logs[1].append(CommitManifest(5, (b"yours",)))
        newest = logs[1].last()
        assert newest is not None
        assert newest[0] == CommitManifest(5, (b"mine",))
        assert logs[1].append(Done(5))
        logs[1].close()


def test_a_broker_that_forgot_the_producer(standalone: StandaloneProcess) -> None:
    """Without deduplication the broker knows nothing: the target itself tells what is there."""
    topic = new_topic(standalone)
    entries = entries_of([f"row-{number}" for number in range(30)], 0)
    with client_of(standalone) as client:
        before = {topic: None}
        half = Publisher(client, Targets(client, topic), SINK, 4, None)
        half.publish(entries[:6])
        half.close()
        rest = Publisher(client, Targets(client, topic), SINK, 4, before)
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
        reader = StagedReader(client, staging, [tasks[0], tasks[2]])
        # In the order that is asked for, whatever lies first.
        assert list(reader.entries(tasks[2])) == made[2]
        assert list(reader.entries(tasks[0])) == made[0]
        lacking = StagedTask(tasks[0].producer, tasks[0].first, tasks[0].last, 4)
        with pytest.raises(SparkSourceError, match="lacks 1 messages"):
            list(StagedReader(client, staging, [lacking]).entries(lacking))


def test_many_inline_rows_are_staged_by_the_driver(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    big = [f"{number:04d}" + "x" * 100_000 for number in range(40)]
    with client_of(standalone) as client:
        middle = stage(client, topic, entries_of(["middle"], 0))
        parts = [entries_of([value], 0) for value in big]
        commit(client, options_of(standalone, topic), 0, *parts[:20], middle, *parts[20:])
        assert values_in(client, topic) == [*big[:20], "middle", *big[20:]]


def test_a_key_keeps_its_order_over_tasks_that_stage_at_the_same_time(standalone: StandaloneProcess) -> None:
    """Tasks of a map-only query each hold a range of a partition: theirs is the order of their ranges."""
    topic = new_topic(standalone)
    values = [f"{number:03d}k" for number in range(60)]
    with client_of(standalone) as client:
        staging = staging_topic(TopicName.parse(topic), SINK)
        writers = [StagingWriter(client, staging) for _ in range(3)]
        made = [entries_of(values[at : at + 20], 0, rows_max=1) for at in (0, 20, 40)]
        for number in range(20):
            for writer, entries in reversed(list(zip(writers, made, strict=True))):
                writer.write(entries[number].encode())
        commit(client, options_of(standalone, topic), 0, *[writer.finish() for writer in writers])
        assert values_in(client, topic) == values


def test_a_batch_into_several_topics(standalone: StandaloneProcess) -> None:
    topics = {new_topic(standalone): 0, new_topic(standalone, 2): 2, new_topic(standalone): 0}
    options = options_of(standalone, "")
    rows = {topic: [f"{topic}-{number}" for number in range(9)] for topic in topics}
    made = [
        [entry._replace(topic=topic) for entry in entries_of(rows[topic], partitions, rows_max=1)]
        for topic, partitions in topics.items()
    ]
    with client_of(standalone) as client:
        for _ in range(2):
            # Entries of different topics lie mixed in a block.
            commit(client, options, 0, [entry for each in zip(*made, strict=True) for entry in each])
        for topic, expected in rows.items():
            assert sorted(values_in(client, topic)) == expected


def test_two_sinks_write_to_one_topic(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        for number in range(3):
            for sink in ("query-1", "query-2"):
                block = block_of(entries_of([f"{sink}-{number}"], 0))
                Sink(client, options, sink).commit(Batch(number, [block], 1, [topic]))
        assert values_in(client, topic) == [f"query-{n % 2 + 1}-{n // 2}" for n in range(6)]


def test_an_earlier_start_of_the_query_is_turned_away(standalone: StandaloneProcess) -> None:
    """A driver that was thought dead, or a second query over a copy of the checkpoint."""
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        commit(client, options, 0, entries_of(["a"], 0), run="first")
        commit(client, options, 1, entries_of(["b"], 0), run="second")
        with pytest.raises(SparkSourceError, match="an earlier start of the query"):
            commit(client, options, 2, entries_of(["c"], 0), run="first")
        commit(client, options, 2, entries_of(["d"], 0), run="third")
        assert values_in(client, topic) == ["a", "b", "d"]


def test_a_repeated_batch_of_another_size_is_told(
    standalone: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        commit(client, options, 0, entries_of(["a", "b"], 0))
        commit(client, options, 0, entries_of(["b", "a"], 0))
        assert not caplog.records
        with pytest.raises(SparkSourceError, match="now has 1 rows instead of 2"):
            commit(client, options, 0, entries_of(["a"], 0))
        lax = options_of(standalone, topic, deterministic="false")
        commit(client, lax, 0, entries_of(["a"], 0))
        assert "had 1 rows instead of 2: the rows of the first time count" in caplog.text
        assert values_in(client, topic) == ["a", "b"]


def test_a_repeated_batch_with_other_rows_is_an_error(
    standalone: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Two writes under one name, or a checkpoint that was set back: as many rows, but others."""
    topic = new_topic(standalone)
    options = options_of(standalone, topic)

    def written(number: int, digest: int | None, options: WriteOptions = options) -> None:
        block = block_of(entries_of(["a", "b"], 0))
        Sink(client, options, SINK).commit(Batch(number, [block], 2, [topic], digest=digest))

    with client_of(standalone) as client:
        for number in range(2):
            written(number, 17)
            written(number, 17)
            with pytest.raises(SparkSourceError, match=r"other rows, as many as before .*writeId of its own"):
                written(number, 18)
            # Records of older versions do not say.
            written(number, None)
        written(1, 18, options_of(standalone, topic, deterministic="false"))
        assert "other rows, as many as before (2)" in caplog.text
        assert values_in(client, topic) == ["a", "b"] * 2
        newest = CommitLog(client, commits_topic(TopicName.parse(topic), SINK), SINK).last()
        assert newest is not None
        assert newest[0] == Done(1, 2, digest=17)


def test_a_batch_without_rows_completes_what_was_begun(standalone: StandaloneProcess) -> None:
    """The first try found rows and wrote its manifest; run again, the batch has none."""
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        commit(client, options, 0, entries_of(["a"], 0))
        log = CommitLog(client, commits_topic(TopicName.parse(topic), SINK), SINK)
        log.open()
        assert log.append(CommitManifest(1, (block_of(entries_of(["b"], 0)),), {topic: None}))
        log.close()
        commit(client, options, 1)
        commit(client, options, 2)
        assert values_in(client, topic) == ["a", "b"]
        newest = log.last()
        assert newest is not None
        assert newest[0] == Done(1)


def test_a_lost_commit_log_is_an_error(standalone: StandaloneProcess) -> None:
    """Rows cut in another way would be skipped by number: better to stop than to lose them."""
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        commit(client, options, 0, entries_of(["a", "b"], 0))
        commits = commits_topic(TopicName.parse(topic), SINK)
        standalone.admin("DELETE", f"{str(commits).replace('://', '/')}?force=true")
        with pytest.raises(SparkSourceError, match="or the log was deleted"):
            commit(client, options, 0, entries_of(["a", "b", "c"], 0))


def test_a_target_created_anew_drops_duplicates_again(standalone: StandaloneProcess) -> None:
    topic = new_topic(standalone)
    options = options_of(standalone, topic)
    with client_of(standalone) as client:
        commit(client, options, 0, entries_of(["a"], 0))
        standalone.admin("DELETE", f"{topic.replace('://', '/')}?force=true")
        commit(client, options, 1, entries_of(["b"], 0))
        assert client.admin.stats(TopicName.parse(topic))["deduplicationStatus"] == "Enabled"
        assert values_in(client, topic) == ["b"]
