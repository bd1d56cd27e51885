"""`POST /sql` of a real broker: what rights show, what limits end, and a loop that goes on meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from magnetar.admin.sql.sql_requests import ARROW_TYPE
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.options import ClientOptions
from magnetar.client.producer import Producer
from magnetar.sql.serving.query_frames import (
    PREFIX,
    READY,
    TOPICS,
    WorkerQuestion,
    WorkerReading,
    line_of,
    size_of,
)
from magnetar.sql.serving.query_process import PROGRAM
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from support.standalone import StandaloneProcess, wait_until
from support.token_broker import token, with_tokens

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

WIDE_ROWS = 900
ROWS = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("sql")
    environment = with_tokens(
        folder,
        MAGNETAR_SQL_QUERIES_MAX="1",
        MAGNETAR_SQL_ROWS_MAX="1000",
        MAGNETAR_SQL_MEMORY_MIB="512",
    )
    with StandaloneProcess(folder / "data", environment=environment) as process:
        for role, actions in (("reader", ["consume"]), ("writer", ["produce"])):
            path = f"/admin/v2/namespaces/public/default/permissions/{role}"
            assert call(process, "POST", path, actions, role="root")[0] == 204
        fill(process)
        yield process


def fill(broker: StandaloneProcess) -> None:
    options = ClientOptions(token=token("writer"))
    with (
        Client(broker.broker_url, options, admin_url=broker.http_url) as client,
        Producer(client, TopicName.parse("orders")) as producer,
    ):
        for number in range(ROWS):
            metadata = pb.MessageMetadata(
                producer_name=producer.name,
                sequence_id=number,
                publish_time=int(1000 * time.time()),
                partition_key=f"k{number % 5}",
            )
            producer.send(number, build_entry(metadata, b"%d" % number))
        producer.flush()


def call(
    broker: StandaloneProcess, method: str, path: str, body: object, *, role: str, accept: str = ""
) -> tuple[int, bytes]:
    connection = opened(broker)
    headers = {"Authorization": f"Bearer {token(role)}", **({"Accept": accept} if accept else {})}
    connection.request(method, path, json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def opened(broker: StandaloneProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=120)


def ask(
    broker: StandaloneProcess, statement: str, *, role: str = "reader", accept: str = "", **limits: float
) -> tuple[int, bytes]:
    return call(broker, "POST", "/sql", {"statement": statement, **limits}, role=role, accept=accept)


def test_rows_of_a_topic_in_both_formats(broker: StandaloneProcess) -> None:
    statement = "SELECT key, count(*) AS n FROM orders GROUP BY key ORDER BY key"
    status, body = ask(broker, statement)
    expected = [{"key": f"k{number}", "n": ROWS // 5} for number in range(5)]
    assert status == 200, body
    assert [json.loads(line) for line in body.splitlines()] == expected
    status, body = ask(broker, statement, accept=ARROW_TYPE)
    assert status == 200
    rows = pa.ipc.open_stream(body).read_all().to_pylist()
    assert [(row["key"].decode(), row["n"]) for row in rows] == [(row["key"], row["n"]) for row in expected]


def test_who_may_not_consume_learns_nothing(broker: StandaloneProcess) -> None:
    answers = {
        (status, body.replace(name.encode(), b"NAME"))
        for name in ("orders", "nothing_here")
        for status, body in [ask(broker, f"SELECT * FROM {name}", role="writer")]
    }
    assert len(answers) == 1
    assert answers.pop()[0] == 403
    assert ask(broker, "SELECT * FROM orders, other.space.t")[0] == 403
    assert ask(broker, "SELECT * FROM nothing_here")[0] == 404


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT getenv('HOME')",
        "SELECT nonsense(",
        "COPY orders TO 'x'",
    ],
)
def test_statements_that_are_none_of_reading_topics(broker: StandaloneProcess, statement: str) -> None:
    assert ask(broker, statement)[0] == 400


def test_limits_end_a_query_and_the_place_is_free(broker: StandaloneProcess) -> None:
    status, body = ask(broker, "SELECT * FROM range(1001)")
    assert (status, b"more than 1,000 rows" in body) == (422, True)
    status, body = ask(broker, "SELECT count(*) FROM range(100000000000) a, orders", seconds=1)
    assert status == 422, body
    assert b"took longer than 1 s" in body
    # An expression of constants, in which the engine itself listens to nothing.
    status, body = ask(broker, "SELECT len(repeat('ab', 400000000))", seconds=1)
    assert status == 422, body
    status, body = ask(broker, "SELECT length(string_agg(i::VARCHAR, ',')) FROM range(200000000) t(i)")
    assert status == 422, body
    assert ask(broker, "SELECT 1 AS one") == (200, b'{"one": 1}\n')


def test_large_rows_stream_through_little_memory(broker: StandaloneProcess) -> None:
    """270 MB of 300 kB each, through an engine that has 256 MiB; and many small rows beside them."""
    options = ClientOptions(token=token("writer"))
    with (
        Client(broker.broker_url, options, admin_url=broker.http_url) as client,
        Producer(client, TopicName.parse("wide")) as producer,
    ):
        for number in range(WIDE_ROWS):
            metadata = pb.MessageMetadata(producer_name=producer.name, sequence_id=number, publish_time=1)
            producer.send(number, build_entry(metadata, b"%06d" % number * 50_000))
        producer.flush()
    for accept in ("", ARROW_TYPE):
        connection = opened(broker)
        body = json.dumps({"statement": "SELECT value FROM wide"})
        headers = {"Authorization": f"Bearer {token('reader')}", **({"Accept": accept} if accept else {})}
        connection.request("POST", "/sql", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        if accept:
            batches = pa.ipc.open_stream(answer)
            found = [value[:6] for batch in batches for value in batch.column(0).to_pylist()]
        else:
            found = [json.loads(line)["value"][:6].encode() for line in answer]
        connection.close()
        assert sorted(found) == [b"%06d" % number for number in range(WIDE_ROWS)]


def test_the_broker_answers_while_a_query_computes(broker: StandaloneProcess) -> None:
    connection = opened(broker)
    body = json.dumps({"statement": "SELECT count(*) FROM range(100000000000) a, orders"})
    connection.request("POST", "/sql", body, {"Authorization": f"Bearer {token('reader')}"})
    wait_until(lambda: workers(broker), 60, "a query runs")
    for _ in range(20):
        assert call(broker, "GET", "/admin/v2/clusters", None, role="reader")[0] == 200
    # The client goes: its query ends, and the next one gets the place at once.
    connection.close()
    assert ask(broker, "SELECT 1 AS one") == (200, b'{"one": 1}\n')


def test_a_process_that_is_killed_is_an_error_and_not_the_brokers_end(broker: StandaloneProcess) -> None:
    connection = opened(broker)
    body = json.dumps({"statement": "SELECT count(*) FROM range(100000000000) a, orders"})
    connection.request("POST", "/sql", body, {"Authorization": f"Bearer {token('reader')}"})
    wait_until(lambda: workers(broker), 60, "a query runs")
    for pid in workers(broker):
        os.kill(pid, signal.SIGKILL)
    answer = connection.getresponse()
    assert answer.status == 500
    assert b"process has ended" in answer.read()
    assert ask(broker, "SELECT 1 AS one") == (200, b'{"one": 1}\n')


def test_a_process_ends_with_its_broker_whatever_it_computes() -> None:
    """Nothing but the end of its input tells it: the engine writes no row, and hears of no deadline."""
    question = WorkerQuestion(
        statement="SELECT sleep_ms(600000)",
        form="json",
        memory_mib=256,
        spill_mib=64,
        seconds_max=600,
        rows_max=10,
    )
    reading = WorkerReading(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:1")
    with subprocess.Popen(
        [sys.executable, "-P", "-m", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(line_of(question))
        for wanted in ((READY, b""), (TOPICS, b"[]")):
            kind, size = size_of(worker.stdout.read(PREFIX.size))
            assert (kind, worker.stdout.read(size)) == wanted
        worker.stdin.write(line_of(reading))
        worker.stdin.close()
        try:
            assert worker.wait(60) == 1
        finally:
            worker.kill()


def test_a_query_over_tls_trusts_the_authority_of_the_brokers(tmp_path: Path) -> None:
    """What `magnetar secure init` makes: no other program of the machine trusts its authority."""
    folder = tmp_path / "secure"
    secure = [sys.executable, "-m", "magnetar", "secure", "init", str(folder)]
    subprocess.run(secure, check=True, capture_output=True, timeout=120)
    ready = tmp_path / "ready.json"
    options = ("--config", str(folder / "secure.toml"))
    environment = {"MAGNETAR_BROKER_TLS_PORT": "0", "MAGNETAR_HTTPS_PORT": "0"}
    admin = (folder / "tokens" / "admin.token").read_text().strip()
    with StandaloneProcess(tmp_path, options=options, environment=environment) as process:
        told = json.loads(ready.read_text())
        options_of_client = ClientOptions(token=admin, tls_trust_certs_file=str(folder / "ca.pem"))
        with (
            Client(told["broker_tls_url"], options_of_client, admin_url=told["https_url"]) as client,
            Producer(client, TopicName.parse("orders")) as producer,
        ):
            metadata = pb.MessageMetadata(producer_name=producer.name, sequence_id=0, publish_time=1)
            producer.send(0, build_entry(metadata, b"one"))
            producer.flush()
        trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        connection = http.client.HTTPSConnection(
            urlsplit(told["https_url"]).netloc, timeout=120, context=trust
        )
        body = json.dumps({"statement": "SELECT count(*) AS n FROM orders"})
        connection.request("POST", "/sql", body, {"Authorization": f"Bearer {admin}"})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        assert found == (200, b'{"n": 1}\n'), process.log_text()


def workers(broker: StandaloneProcess) -> list[int]:
    """Processes of queries, of this broker."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # It has ended meanwhile.
        if b"query_worker" in command and parent == broker.pid:
            found.append(int(path.name))
    return found
