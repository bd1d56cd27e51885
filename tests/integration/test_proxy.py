"""A real proxy before a real broker, and before several: the official client through it, what it refuses, and
brokers that are lost behind it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pulsar
import pytest

from support.broker_clusters import broker_cluster
from support.drivers import NotHereError
from support.official import QUIET, receive_all
from support.raw_client import RawClient
from support.serving import serving
from support.sessions import Type, command
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process

OTHER_ADDRESSES = ["127.0.0.1:22", "localhost:6650", "169.254.169.254:80", "pulsar://[::1]:6650"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with serving(tmp_path_factory.mktemp("broker"), ephemeral=True) as process:
        yield process


@pytest.fixture(scope="module")
def proxy(broker: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    options = ("--brokers", broker.broker_url, "--brokers-http", ",".join(broker.http_urls))
    with proxy_before(tmp_path_factory.mktemp("proxy"), *options) as process:
        yield process


def proxy_before(folder: Path, *options: str) -> StandaloneProcess:
    return StandaloneProcess(folder, role="proxy", options=options)


def client_of(proxy: StandaloneProcess) -> pulsar.Client:
    return pulsar.Client(proxy.broker_url, operation_timeout_seconds=60, logger=QUIET)


def test_messages_pass_in_both_directions(proxy: StandaloneProcess) -> None:
    client = client_of(proxy)
    consumer = client.subscribe("passes", "s")
    producer = client.create_producer("passes", block_if_queue_full=True)
    payloads = [b"%d:" % number + b"x" * 20_000 for number in range(500)]
    for payload in payloads:
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    assert receive_all(consumer, len(payloads)) == payloads
    client.close()


def test_partitions_and_lists_of_topics_are_known(
    proxy: StandaloneProcess, broker: StandaloneProcess
) -> None:
    broker.admin("PUT", "persistent/public/default/parts/partitions", 3)
    client = client_of(proxy)
    consumer = client.subscribe(re.compile("persistent://public/default/parts.*"), "s")
    assert len(client.get_topic_partitions("parts")) == 3
    producer = client.create_producer("parts")
    for number in range(30):
        producer.send(b"%d" % number)
    assert sorted(receive_all(consumer, 30)) == sorted(b"%d" % number for number in range(30))
    client.close()


@pytest.mark.parametrize("named", OTHER_ADDRESSES)
def test_no_other_address_is_connected_to(proxy: StandaloneProcess, named: str) -> None:
    with RawClient(proxy.broker_url, handshake=False) as client:
        client.send(command(Type.CONNECT, client_version="t", proxy_to_broker_url=named))
        client.wait(lambda: client.closed, "refused")
        (refusal,) = client.commands(Type.ERROR)
    assert "none of the brokers" in refusal.message
    assert f"{named!r} names none of the brokers" in proxy.log_text()


def test_a_port_of_the_broker_that_is_not_for_clients_is_not_connected_to(
    proxy: StandaloneProcess, broker: StandaloneProcess
) -> None:
    with RawClient(proxy.broker_url, handshake=False) as client:
        named = broker.http_url.removeprefix("http://")
        client.send(command(Type.CONNECT, client_version="t", proxy_to_broker_url=named))
        client.wait(lambda: client.closed, "refused")
        assert client.commands(Type.ERROR)


def test_what_is_sent_with_connect_arrives_behind_it(
    proxy: StandaloneProcess, broker: StandaloneProcess
) -> None:
    named = broker.broker_url.removeprefix("pulsar://").partition(",")[0]
    with RawClient(proxy.broker_url, handshake=False) as client:
        connect = command(Type.CONNECT, client_version="t", proxy_to_broker_url=named)
        client.send(connect + command(Type.PING))
        client.wait(lambda: client.commands(Type.PONG), "PONG")
        assert client.commands(Type.CONNECTED)


def test_the_admin_api_is_passed_on(proxy: StandaloneProcess) -> None:
    proxy.admin("PUT", "persistent/public/default/by-http/partitions", 2)
    assert proxy.admin("GET", "persistent/public/default/by-http/partitions")["partitions"] == 2
    with pytest.raises(HTTPError) as refused:
        proxy.admin("GET", "persistent/public/none/by-http/partitions")
    assert refused.value.code == 404


def test_the_proxy_has_pages_of_its_own(proxy: StandaloneProcess) -> None:
    with RawClient(proxy.broker_url):
        assert urlopen(f"{proxy.http_url}/status.html", timeout=60).status == 200
        stats = json.load(urlopen(f"{proxy.http_url}/proxy-stats", timeout=60))
        assert "lookups" in [row["state"] for row in stats]
        metrics = urlopen(f"{proxy.http_url}/metrics", timeout=60).read().decode()
    for name in (
        "active_connections",
        "new_connections",
        "rejected_connections",
        "binary_ops",
        "binary_bytes",
    ):
        assert f"\npulsar_proxy_{name} " in metrics


@pytest.mark.parametrize("path", ["/", "/ws/v2/producer/x", "//evil.example/admin/v2/", "/adminx"])
def test_other_paths_are_not_passed_on(proxy: StandaloneProcess, path: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(proxy.http_url + path, timeout=60)
    assert refused.value.code == 404


@pytest.mark.parametrize("target", ["%2fadmin%2f@{elsewhere}/", "%2fadmin/", "http://{elsewhere}/admin/v2/"])
def test_no_call_names_the_machine_that_gets_it(proxy: StandaloneProcess, target: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        host, port = proxy.http_url.removeprefix("http://").split(":")
        named = target.format(elsewhere=f"127.0.0.1:{elsewhere.getsockname()[1]}")
        with socket.create_connection((host, int(port)), timeout=60) as caller:
            caller.sendall(f"GET {named} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            answer = HTTPResponse(caller)
            answer.begin()
            assert answer.status in (400, 404)
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_connect_may_come_in_pieces(proxy: StandaloneProcess) -> None:
    with RawClient(proxy.broker_url, handshake=False) as client:
        connect = command(Type.CONNECT, client_version="t")
        for at in range(len(connect)):
            client.send(connect[at : at + 1])
        client.wait(lambda: client.commands(Type.CONNECTED), "CONNECTED")


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x10\x00\x00\x00\x0f\xff\xfc\x08\x02",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_are_not_the_protocol_end_their_own_connection(
    proxy: StandaloneProcess, sent: bytes
) -> None:
    with RawClient(proxy.broker_url) as other, RawClient(proxy.broker_url, handshake=False) as client:
        client.send(sent)
        client.wait(lambda: client.closed, "closed")
        other.send(command(Type.PING))
        other.wait(lambda: other.commands(Type.PONG), "PONG")


def test_a_proxy_that_ends_takes_no_new_clients(broker: StandaloneProcess, tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f'brokers = "{broker.broker_url}"\ndrain_seconds = 600\n')
    # One of several is closed at once: the others wait for their turn when it sees the end.
    with proxy_before(tmp_path, "--config", str(file)) as ending, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(ending.broker_url)) for _ in range(40)]
        os.kill(ending.pid, signal.SIGTERM)
        ended = selectors.DefaultSelector()
        for client in clients:
            ended.register(client.socket, selectors.EVENT_READ)
        assert ended.select(60), "the first part is closed"
        with pytest.raises(ConnectionRefusedError):
            RawClient(ending.broker_url, handshake=False)
        ending.kill()


@pytest.mark.slow
@pytest.mark.one_process("own")
def test_clients_go_on_when_a_broker_behind_the_proxy_is_killed(tmp_path: Path) -> None:
    try:
        with broker_cluster(tmp_path) as cluster:
            for _ in range(2):
                cluster.start_broker()
            with proxy_before(tmp_path / "proxy", "--metadata", cluster.metadata) as proxy:
                client = client_of(proxy)
                topics = [f"topic-{number}" for number in range(4)]
                producers = {topic: client.create_producer(topic) for topic in topics}
                consumers = {topic: client.subscribe(topic, "s") for topic in topics}
                for producer in producers.values():
                    producer.send(b"before")
                for topic in topics:
                    # One broker redirects to the other, which the caller does not see.
                    stats = proxy.admin("GET", f"persistent/public/default/{topic}/stats")
                    assert stats["msgInCounter"] == 1
                cluster.owner_of(topics[0]).kill()
                for producer in producers.values():
                    producer.send(b"after")
                for topic, consumer in consumers.items():
                    seen = set()
                    while seen != {b"before", b"after"}:
                        message = consumer.receive(60_000)
                        consumer.acknowledge(message)
                        seen.add(message.data())
                    assert seen == {b"before", b"after"}, topic
                client.close()
    except NotHereError as error:  # the service's package could not be fetched: it says which and why
        pytest.skip(str(error))
