"""`magnetar sql` counts and shows what the official client's consumer gets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from socket import socket
from typing import Any

import pulsar
import pytest

from magnetar.client.client import Client
from magnetar.sql.errors import RowsGoneError, StatementError, UnknownTopicError
from magnetar.sql.limits import QueryLimits
from magnetar.sql.queries import Query, QueryReport
from support.history_topics import KEEP_EVERYTHING, HistoryTopic
from support.official import QUIET
from support.standalone import StandaloneProcess, wait_until
from support.transactional_history import write_ledgers

pytestmark = [pytest.mark.process, pytest.mark.one_process("history")]

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A broker that keeps everything, with a folder as its store."""
    environment = KEEP_EVERYTHING | {"MAGNETAR_TRANSACTIONS": "true"}
    with StandaloneProcess(tmp_path_factory.mktemp("keeper"), environment=environment) as process:
        yield process


@pytest.fixture
def client(keeper: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(keeper.broker_url, operation_timeout_seconds=30, logger=QUIET)
    yield made
    made.close()


def ask(
    keeper: StandaloneProcess,
    text: str,
    *,
    admin_url: str = "",
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[Rows, QueryReport]:
    """`admin_url`: another one, which may not answer. `meanwhile`: called between plan and reading."""

    def connect() -> Client:
        return Client(keeper.broker_url, admin_url=admin_url or keeper.http_url)

    with Query(text, connect, QueryLimits(memory_mb=256, threads=2), admin_given=not admin_url) as query:
        query.plan()
        meanwhile()
        _, batches = query.rows()
        rows = [row for batch in batches for row in batch.to_pylist()]
        return rows, query.report


def count(keeper: StandaloneProcess, table: str, where: str = "") -> int:
    rows, _ = ask(keeper, f"SELECT count(*) AS n FROM {table} {where}")
    found: int = rows[0]["n"]
    return found


def consumed(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """What a consumer gets from the first message on."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000))
    reader.close()
    return found


def offloaded(keeper: StandaloneProcess, topic: str) -> HistoryTopic:
    """Seals what the topic has, and offloads it."""
    made = HistoryTopic(keeper, topic)
    keeper.admin("PUT", f"{made.path}/unload")
    made.offload()
    return made


def test_history_and_tail_are_one_table(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    topic = HistoryTopic(keeper, "persistent://public/default/one_table")
    for _ in range(2):
        topic.fill_ledger(200)
    topic.offload()
    topic.fill_ledger(100)
    messages = consumed(client, topic.topic)
    rows, report = ask(
        keeper,
        "SELECT ledger_id, entry_id, batch_index, payload, key, publish_time FROM one_table ORDER BY ALL",
    )
    assert [(row["ledger_id"], row["entry_id"], row["batch_index"]) for row in rows] == sorted(
        (each.message_id().ledger_id(), each.message_id().entry_id(), each.message_id().batch_index())
        for each in messages
    )
    assert sorted(row["payload"] for row in rows) == sorted(each.data() for each in messages)
    assert report.counts.files == 2
    assert report.counts.file_rows == 400
    assert report.counts.entries > 0
    assert count(keeper, "one_table") == 500


def test_files_that_a_query_cannot_want_are_skipped(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    topic = HistoryTopic(keeper, "persistent://public/default/skipping")
    for _ in range(3):
        topic.fill_ledger(100)
    topic.offload()
    seen = topic.read()
    border = seen[150].publish_ms
    ledgers = sorted({each.ledger_id for each in seen})

    rows, report = ask(
        keeper, f"SELECT count(*) AS n FROM skipping WHERE publish_time >= to_timestamp({border} / 1000.0)"
    )
    assert rows[0]["n"] == sum(each.publish_ms >= border for each in seen)
    assert (report.counts.files, report.counts.skipped_files) == (2, 1)
    assert report.counts.skipped_bytes > 0

    rows, report = ask(keeper, f"SELECT count(*) AS n FROM skipping s WHERE s.ledger_id = {ledgers[1]}")
    assert rows[0]["n"] == 100
    assert (report.counts.files, report.counts.skipped_files) == (1, 2)

    rows, report = ask(keeper, "SELECT payload FROM skipping WHERE key = 'key 3' ORDER BY 1")
    assert [row["payload"] for row in rows] == sorted(each.data for each in seen if each.key == "key 3")
    rows, report = ask(keeper, "SELECT payload FROM skipping WHERE key = 'no such key'")
    assert rows == []
    assert (report.counts.files, report.counts.skipped_files) == (0, 3)


def test_versions_of_a_schema_and_broken_values(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    fields = {"name": pulsar.schema.String()}
    Old = type("Order", (pulsar.schema.Record,), dict(fields))  # noqa: N806
    fields["amount"] = pulsar.schema.Integer(default=7, required_default=True)
    New = type("Order", (pulsar.schema.Record,), dict(fields))  # noqa: N806

    topic = "persistent://public/default/versions"
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Old))
    producer.send(Old(name="a"))
    producer.close()
    offloaded(keeper, topic)
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(New))
    producer.send(New(name="b", amount=2))
    producer.close()
    rows, _ = ask(keeper, "SELECT name, amount, value.name AS again FROM versions ORDER BY name")
    assert rows == [
        {"name": "a", "amount": 7, "again": "a"},
        {"name": "b", "amount": 2, "again": "b"},
    ]
    # A file that lacks the new field still has the other one, and the engine itself reads it.
    rows, report = ask(keeper, "SELECT name FROM versions ORDER BY name")
    assert [row["name"] for row in rows] == ["a", "b"]
    assert report.counts.decoded_rows == 1


def test_deleted_keys_and_compaction(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    topic = "persistent://public/default/compacted"
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(60):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 5}")
    producer.flush()
    producer.close()
    compaction = f"{topic.replace('://', '/')}/compaction"
    keeper.admin("PUT", compaction)
    wait_until(lambda: keeper.admin("GET", compaction)["status"] == "SUCCESS", 30, "compacted")
    expected = len(consumed(client, topic))
    assert count(keeper, "compacted") == expected
    offloaded(keeper, topic)
    assert count(keeper, "compacted") == expected == len(consumed(client, topic))


def test_large_messages_in_pieces(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    topic = "persistent://public/default/pieces"
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    sizes = [10, 12_000_000, 20]
    for size in sizes:
        producer.send(b"x" * size)
    producer.close()
    text = "SELECT octet_length(payload) AS size FROM pieces ORDER BY ledger_id, entry_id"
    assert [row["size"] for row in ask(keeper, text)[0]] == sizes
    offloaded(keeper, topic)
    rows, report = ask(keeper, text)
    assert [row["size"] for row in rows] == sizes
    assert count(keeper, "pieces") == 3
    assert report.counts.entries == 0


def test_only_what_is_committed_is_there(keeper: StandaloneProcess) -> None:
    topic = HistoryTopic(keeper)
    kept = write_ledgers(topic)
    table = topic.topic.rpartition("/")[2]
    for _ in range(2):
        rows, _report = ask(keeper, f"SELECT payload FROM {table} ORDER BY ledger_id, entry_id, batch_index")
        assert [row["payload"] for row in rows] == kept == [each.data for each in topic.read()]
        topic.offload()


def test_delayed_messages_and_partitions(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    topic = "persistent://public/default/parted"
    keeper.admin("PUT", f"{topic.replace('://', '/')}/partitions", 3)
    producer = client.create_producer(topic)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"k{number}", deliver_after=timedelta(hours=number % 2))
    producer.close()
    rows, report = ask(keeper, "SELECT partition, count(*) AS n FROM parted GROUP BY 1")
    assert sum(row["n"] for row in rows) == 30
    assert {row["partition"] for row in rows} <= {0, 1, 2}
    rows, report = ask(keeper, "SELECT count(*) AS n FROM parted WHERE partition = 1")
    assert report.counts.skipped_partitions == 2
    assert rows[0]["n"] == count(keeper, '"parted-partition-1"')


def test_topics_are_joined_from_one_snapshot(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    for name in ("left_side", "right_side"):
        producer = client.create_producer(f"persistent://public/default/{name}")
        for number in range(10):
            producer.send(b"%d" % number, partition_key=f"k{number}")
        producer.close()
    rows, _ = ask(
        keeper,
        "WITH left_side AS (SELECT * FROM left_side WHERE key <> 'k0')"
        " SELECT count(*) AS n FROM left_side JOIN public.default.right_side r USING (key)",
    )
    assert rows == [{"n": 9}]


def test_states_of_other_times(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    """History in two files, a part of one, and a tail: the state of each time is a beginning of the log."""
    topic = HistoryTopic(keeper, "persistent://public/default/states")
    for _ in range(2):
        topic.fill_ledger(50)
    topic.offload()
    topic.fill_ledger(50)
    rows, _ = ask(
        keeper,
        "SELECT epoch_ms(broker_time) AS ms FROM states ORDER BY ledger_id, entry_id, batch_index",
    )
    times = [row["ms"] for row in rows]
    assert len(times) == 150
    for moment in {times[0] - 1, times[0], times[49], times[60], times[99], times[120], times[149]}:
        rows, _ = ask(
            keeper,
            "SELECT (SELECT count(*) FROM states) AS n, count(*) AS then_n, count(payload) AS payloads"
            f" FROM states FOR SYSTEM_TIME AS OF to_timestamp({moment} / 1000.0) s",
        )
        there = sum(time <= moment for time in times)
        assert rows == [{"n": 150, "then_n": there, "payloads": there}]
    with pytest.raises(StatementError, match="a time to come"):
        count(keeper, "states FOR SYSTEM_TIME AS OF now() + INTERVAL 1 HOUR")


def test_without_an_admin_interface_all_messages_are_there(
    keeper: StandaloneProcess, client: pulsar.Client
) -> None:
    topic = HistoryTopic(keeper, "persistent://public/default/no_admin")
    topic.fill_ledger(30)
    topic.offload()
    topic.fill_ledger(20)
    with socket() as taken:  # a port that nothing answers on
        taken.bind(("127.0.0.1", 0))
        nothing = f"http://127.0.0.1:{taken.getsockname()[1]}"
        rows, _ = ask(keeper, "SELECT count(*) AS n FROM no_admin", admin_url=nothing)
    assert rows == [{"n": 50}]


def test_files_that_are_deleted_meanwhile(keeper: StandaloneProcess) -> None:
    topic = HistoryTopic(keeper, "persistent://public/default/deleted_files")
    topic.fill_ledger(10)
    topic.offload()

    def delete() -> None:
        keeper.admin("DELETE", f"{topic.path}?force=true")

    with pytest.raises(RowsGoneError, match="of its history is gone"):
        ask(keeper, "SELECT count(*) FROM deleted_files WHERE payload IS NOT NULL", meanwhile=delete)


def test_the_command(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    producer = client.create_producer("persistent://public/default/commanded")
    producer.send("größer".encode(), partition_key="k")
    producer.close()

    def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        place = ["--url", keeper.broker_url, "--admin-url", keeper.http_url]
        return subprocess.run(
            [sys.executable, "-m", "magnetar", "sql", *place, *arguments],
            capture_output=True,
            check=False,
            **more,
        )

    found = run("-o", "json", "SELECT decode(value) AS v, key FROM commanded;")
    assert json.loads(found.stdout) == {"v": "größer", "key": "k"}
    assert found.stderr.startswith(b"DuckDB ")
    assert b"entries from brokers" in found.stderr
    assert run("--quiet", "-o", "csv", "SELECT key FROM commanded").stdout == b"key\r\nk\r\n"
    assert run("SELECT * FROM no_such_topic").returncode == 4
    assert run("SELECT nonsense FROM commanded").returncode == 1
    assert b"commanded" in run("SHOW TOPICS").stdout
    assert b"publish_time" in run("DESCRIBE commanded").stdout
    assert run("EXPLAIN SELECT count(*) FROM commanded").stderr.startswith(b"DuckDB ")
    import pyarrow as pa

    stream = run("--quiet", "-o", "arrow", "SELECT 1 AS one, key FROM commanded").stdout
    assert pa.ipc.open_stream(stream).read_all().to_pylist() == [{"one": 1, "key": b"k"}]


def test_a_result_becomes_messages(keeper: StandaloneProcess, client: pulsar.Client) -> None:
    """A schema that the command makes, and one that the official client has made before."""
    producer = client.create_producer("persistent://public/default/sold")
    for number in range(6):
        producer.send(b"%d" % number, partition_key=f"k{number % 2}", event_timestamp=1000 + number)
    producer.close()

    def run(text: str) -> subprocess.CompletedProcess[bytes]:
        place = ["--url", keeper.broker_url, "--admin-url", keeper.http_url]
        command = [sys.executable, "-m", "magnetar", "sql", *place, text]
        return subprocess.run(command, capture_output=True, check=False)

    query = (
        "SELECT key, max(event_time) AS event_time, decode(key) AS item, sum(decode(value)::INT) AS total"
        " FROM sold GROUP BY key ORDER BY key"
    )
    found = run(f"INSERT INTO totals {query}")
    assert found.returncode == 0, found.stderr
    assert b"2 messages published to persistent://public/default/totals" in found.stderr
    rows, _ = ask(keeper, "SELECT item, total, decode(key) AS k FROM totals ORDER BY item")
    assert rows == [{"item": "k0", "total": 6, "k": "k0"}, {"item": "k1", "total": 9, "k": "k1"}]
    seen = consumed(client, "persistent://public/default/totals")
    assert sorted((each.partition_key(), each.event_timestamp()) for each in seen) == [
        ("k0", 1004),
        ("k1", 1005),
    ]

    fields = {"item": pulsar.schema.String(), "total": pulsar.schema.Long()}
    Total = type("Total", (pulsar.schema.Record,), fields)  # noqa: N806
    schema = pulsar.schema.AvroSchema(Total)
    client.create_producer("persistent://public/default/avro_totals", schema=schema).close()
    assert run(f"INSERT INTO avro_totals SELECT item, total FROM ({query})").returncode == 0
    reader = client.create_reader(
        "persistent://public/default/avro_totals", pulsar.MessageId.earliest, schema=schema
    )
    assert {(each.item, each.total) for each in (reader.read_next(30_000).value() for _ in range(2))} == {
        ("k0", 6),
        ("k1", 9),
    }
    reader.close()
    # A query that fails publishes nothing.
    assert run("INSERT INTO avro_totals SELECT item, total / 0 AS nope FROM totals").returncode == 1
    assert run("INSERT INTO broken SELECT error('x') AS a FROM totals").returncode == 1
    assert count(keeper, "avro_totals") == 2


def test_a_topic_that_is_not_there(keeper: StandaloneProcess) -> None:
    with pytest.raises(UnknownTopicError, match="no topic nothing_here"):
        count(keeper, "nothing_here")
