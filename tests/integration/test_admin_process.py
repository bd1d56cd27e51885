"""The admin API of a real process, beside the official client."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.standalone import StandaloneProcess, wait_until

pytestmark = pytest.mark.process

T = "/admin/v2/persistent/public/default"
STANDALONE = [sys.executable, "-m", "magnetar", "standalone"]
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


class Admin:
    """Calls over the standard library's HTTP client."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes, Message]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    def get(self, path: str) -> Any:
        status, body, _ = self.call("GET", path)
        assert status == 200, body
        return json.loads(body)

    def done(self, method: str, path: str, body: object = None) -> None:
        status, answer, _ = self.call(method, path, body)
        assert status == 204, answer


@pytest.fixture
def admin(standalone: StandaloneProcess) -> Admin:
    return Admin(standalone.http_url)


def test_health_version_and_pages(admin: Admin) -> None:
    assert admin.call("GET", "/admin/v2/brokers/health")[:2] == (200, b"ok")
    assert admin.call("GET", "/status.html")[:2] == (200, b"OK")
    assert admin.call("GET", "/")[0] == 200
    assert admin.call("GET", "/nothing")[0] == 404


def test_a_client_finds_its_topics_over_http(admin: Admin, standalone: StandaloneProcess) -> None:
    name = "admin-lookup"
    admin.done("PUT", f"{T}/{name}/partitions", 2)
    client = pulsar.Client(standalone.http_url, logger=QUIET)
    try:
        assert client.get_topic_partitions(name) == [
            f"persistent://public/default/{name}-partition-{i}" for i in range(2)
        ]
        consumer = client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(name, batching_enabled=False)
        for number in range(10):
            producer.send(str(number).encode())
        received = set()
        for _ in range(10):
            message = consumer.receive(10_000)
            received.add(message.data())
            consumer.acknowledge(message)
        assert received == {str(number).encode() for number in range(10)}
        stats = admin.get(f"{T}/{name}/partitioned-stats")
        assert stats["msgInCounter"] == 10
        assert producer.producer_name() in {entry["producerName"] for entry in stats["publishers"]}
        assert len(stats["subscriptions"]["s"]["consumers"]) == 2
        wait_until(
            lambda: admin.get(f"{T}/{name}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 0,
            10,
            "all acknowledged",
        )
    finally:
        client.close()


def test_a_regex_consumer_over_http_lists_the_namespace(admin: Admin, standalone: StandaloneProcess) -> None:
    for number in range(2):
        admin.done("PUT", f"{T}/admin-regex-{number}")
    client = pulsar.Client(standalone.http_url, logger=QUIET)
    try:
        pattern = re.compile("persistent://public/default/admin-regex-.*")
        consumer = client.subscribe(pattern, "s", initial_position=pulsar.InitialPosition.Earliest)
        for number in range(2):
            client.create_producer(f"admin-regex-{number}").send(b"x")
        topics = set()
        for _ in range(2):
            topics.add(consumer.receive(10_000).topic_name())
        assert topics == {f"persistent://public/default/admin-regex-{number}" for number in range(2)}
    finally:
        client.close()


def test_deduplication_bites_at_once(admin: Admin, standalone: StandaloneProcess) -> None:
    name = "admin-dedup"
    admin.done("PUT", f"{T}/{name}")
    admin.done("POST", f"{T}/{name}/deduplicationEnabled", True)
    client = pulsar.Client(standalone.broker_url, logger=QUIET)
    try:
        producer = client.create_producer(name, producer_name="p", batching_enabled=False)
        for sequence in (0, 1, 1, 0, 2):
            producer.send(b"x", sequence_id=sequence)
    finally:
        client.close()
    info = admin.get(f"{T}/{name}/internalStats")
    assert info["numberOfEntries"] == 3
    assert admin.get(f"{T}/{name}/stats")["deduplicationStatus"] == "Enabled"


def test_reset_and_skip_with_a_connected_consumer(admin: Admin, standalone: StandaloneProcess) -> None:
    name = "admin-reset"
    client = pulsar.Client(standalone.broker_url, logger=QUIET)
    try:
        consumer = client.subscribe(name, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(name, batching_enabled=False)
        ids = [producer.send(str(number).encode()) for number in range(5)]
        for _ in range(5):
            consumer.acknowledge(consumer.receive(10_000))
        body = {"ledgerId": ids[3].ledger_id(), "entryId": ids[3].entry_id()}
        admin.done("POST", f"{T}/{name}/subscription/s/resetcursor", body)
        assert [consumer.receive(10_000).data() for _ in range(2)] == [b"3", b"4"]
        admin.done("POST", f"{T}/{name}/subscription/s/skip_all")
        producer.send(b"after")
        assert consumer.receive(10_000).data() == b"after"
    finally:
        client.close()


def test_a_batch_is_shown_as_it_is_stored(admin: Admin, standalone: StandaloneProcess) -> None:
    name = "admin-batch"
    admin.done("PUT", f"{T}/{name}")
    admin.done("PUT", f"{T}/{name}/subscription/s", "earliest")
    client = pulsar.Client(standalone.broker_url, logger=QUIET)
    try:
        producer = client.create_producer(
            name,
            batching_enabled=True,
            batching_max_publish_delay_ms=1_000,
            compression_type=pulsar.CompressionType.LZ4,
        )
        for number in range(3):
            producer.send_async(str(number).encode(), None)
        producer.flush()
    finally:
        client.close()
    status, body, headers = admin.call("GET", f"{T}/{name}/subscription/s/position/1")
    assert status == 200
    assert headers["X-Pulsar-num-batch-message"] == "3"
    assert all(str(number).encode() in body for number in range(3))
    assert admin.get(f"{T}/{name}/lastMessageId")["batchIndex"] == 2
    info = admin.get(f"{T}/{name}/internalStats")
    assert (info["numberOfEntries"], info["messages"], info["lastIndex"]) == (1, 3, 2)


def test_a_terminated_topic_takes_no_producer(admin: Admin, standalone: StandaloneProcess) -> None:
    name = "admin-terminated"
    client = pulsar.Client(standalone.broker_url, logger=QUIET, operation_timeout_seconds=30)
    try:
        client.create_producer(name).send(b"last")
        status, body, _ = admin.call("POST", f"{T}/{name}/terminate")
        assert status == 200
        assert json.loads(body)["entryId"] == 0
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(name)
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        assert reader.read_next(10_000).data() == b"last"
    finally:
        client.close()


def test_schemas_are_seen_from_both_sides(admin: Admin, standalone: StandaloneProcess) -> None:
    class Flight(pulsar.schema.Record):  # type: ignore[misc]  # the client has no types
        carrier = pulsar.schema.String()

    name = "admin-schema"
    client = pulsar.Client(standalone.broker_url, logger=QUIET)
    try:
        client.create_producer(name, schema=pulsar.schema.AvroSchema(Flight))
    finally:
        client.close()
    stored = admin.get(f"/admin/v2/schemas/public/default/{name}/schema")
    assert stored["type"] == "AVRO"
    assert json.loads(stored["data"])["name"] == "Flight"


@pytest.mark.one_process("inside")
def test_metrics_are_read_by_prometheus(admin: Admin, standalone: StandaloneProcess) -> None:
    client = pulsar.Client(standalone.broker_url, logger=QUIET)
    try:
        client.create_producer("admin-metrics", batching_enabled=False).send(b"x")
    finally:
        client.close()
    status, body, _ = admin.call("GET", "/metrics")
    assert status == 200
    received = {
        sample.labels["topic"]: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == "pulsar_in_messages_total"
    }
    assert received["persistent://public/default/admin-metrics"] == 1


def test_what_was_set_outlives_the_process(standalone_folder: StandaloneProcess) -> None:
    admin = Admin(standalone_folder.start().http_url)
    admin.done("PUT", "/admin/v2/tenants/acme")
    admin.done("PUT", "/admin/v2/namespaces/acme/orders")
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    admin.done("POST", "/admin/v2/namespaces/acme/orders/retention", retention)
    topic = "/admin/v2/persistent/acme/orders/t"
    admin.done("PUT", topic)
    admin.done("PUT", f"{topic}/properties", {"owner": "me"})
    admin.done("PUT", f"{topic}/subscription/s", {"ledgerId": -1, "entryId": -1, "properties": {"k": "v"}})
    standalone_folder.kill()
    admin = Admin(standalone_folder.start().http_url)
    assert admin.get("/admin/v2/namespaces/acme/orders/retention") == retention
    assert admin.get(f"{topic}/properties") == {"owner": "me"}
    assert admin.get(f"{topic}/subscriptions") == ["s"]
    assert standalone_folder.stop() == 0


@pytest.mark.one_process("start")
def test_a_port_in_use_ends_the_process_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            [*STANDALONE, "--ephemeral", "--port", "0", "--http-port", str(port)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert f"port {port} is in use" in line
    assert "--http-port" in line


def test_hostile_requests_harm_nobody_else(admin: Admin, standalone: StandaloneProcess) -> None:
    address = urlsplit(standalone.http_url)
    assert address.hostname is not None
    assert address.port is not None
    attacks = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /admin/v2/tenants/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /admin/v2/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    )
    for attack in attacks:
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(attack)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        assert admin.call("GET", "/status.html")[0] == 200


def test_many_callers_at_once(admin: Admin) -> None:
    statuses: list[int] = []
    callers = [
        threading.Thread(target=lambda: statuses.append(admin.call("GET", "/admin/v2/brokers/health")[0]))
        for _ in range(32)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert statuses == [200] * 32
