"""Many connections, many consumers on one topic, a stalled one among them: bounded memory, no client starves.

`MAGNETAR_TEST_CLIENTS` sets how many (1,000 unless told otherwise; 10,000 needs as many open files). With
`pytest -s` it prints what one connection and one consumer take.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from magnetar.wire.acks import encode_flow
from support.raw_client import RawClient
from support.sessions import Type, command
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

CLIENTS = int(os.environ.get("MAGNETAR_TEST_CLIENTS", "1000"))
CONNECTION_BYTES_MAX = 64 << 10
"""What an idle connection may take, its share of the process's own growth included."""
CONSUMER_BYTES_MAX = 32 << 10
CONSUMERS_PER_CONNECTION = 100


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("many"), ephemeral=True) as started:
        # The admin service loads its libraries after the start: they do not belong to what clients cost.
        urlopen(f"{started.http_url}/admin/v2/brokers/ready", timeout=20).close()
        yield started


def new_topic() -> str:
    return f"persistent://public/default/many-{uuid.uuid4().hex}"


def subscription_states(process: StandaloneProcess, topic: str) -> list[Any]:
    path = topic.partition("://")[2]
    return list(process.admin("GET", f"persistent/{path}/explain"))


def subscribe_many(client: RawClient, topic: str, first: int, count: int, permits: int) -> None:
    """Shared consumers of the subscription "s", answered all together."""
    client.send(
        *(
            command(
                Type.SUBSCRIBE,
                topic=topic,
                subscription="s",
                subType=1,
                consumer_id=first + i,
                request_id=10_000 + first + i,
            )
            for i in range(count)
        )
    )
    client.wait(lambda: len(client.commands(Type.SUCCESS)) == count, "subscribed")
    if permits:
        client.send(*(encode_flow(first + i, permits) for i in range(count)))


def test_many_connections_are_small_and_all_served(process: StandaloneProcess) -> None:
    topic = new_topic()
    with ExitStack() as stack:
        publisher = stack.enter_context(RawClient(process.broker_url))
        publisher.open_producer(topic)
        before = rss_bytes(process.pid)
        clients = [stack.enter_context(RawClient(process.broker_url)) for _ in range(CLIENTS)]
        each = (rss_bytes(process.pid) - before) / CLIENTS
        print(f"\n{CLIENTS} connections: {each / 1024:.1f} KiB each")
        assert each < CONNECTION_BYTES_MAX
        for client in clients:
            client.send(
                command(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=1)
            )
        for client in clients:
            client.wait(lambda client=client: client.commands(Type.SUCCESS), "subscribed")
            client.send(encode_flow(1, 10))
        each = (rss_bytes(process.pid) - before) / CLIENTS
        print(f"with a consumer on each: {each / 1024:.1f} KiB each")
        publisher.publish(range(CLIENTS * 10), b"x")
        for client in clients:
            client.wait(lambda client=client: len(client.messages) == 10, "its share")
        (found,) = subscription_states(process, topic)
        assert found["state"] == "all-sent"
        assert {each["state"] for each in found["consumers"]} == {"no-permits"}


def test_many_consumers_on_one_topic_with_one_that_stalls(process: StandaloneProcess) -> None:
    topic = new_topic()
    with ExitStack() as stack:
        publisher = stack.enter_context(RawClient(process.broker_url))
        publisher.open_producer(topic)
        before = rss_bytes(process.pid)
        clients = []
        for first in range(0, CLIENTS, CONSUMERS_PER_CONNECTION):
            client = stack.enter_context(RawClient(process.broker_url))
            clients.append(client)
            subscribe_many(client, topic, first, CONSUMERS_PER_CONNECTION, permits=5)
        each = (rss_bytes(process.pid) - before) / CLIENTS
        print(f"\n{CLIENTS} consumers on {len(clients)} connections: {each / 1024:.1f} KiB each")
        assert each < CONSUMER_BYTES_MAX
        stalled = stack.enter_context(RawClient(process.broker_url))
        subscribe_many(stalled, topic, CLIENTS, 1, permits=0)
        publisher.publish(range(CLIENTS * 5), b"x")
        for client in clients:
            client.wait(
                lambda client=client: len(client.messages) == 5 * CONSUMERS_PER_CONNECTION, "its share"
            )
        assert not stalled.messages

        def everything_sent() -> bool:
            (found,) = subscription_states(process, topic)
            return bool(found["state"] == "all-sent")

        wait_until(everything_sent, 30, "the subscription has sent everything")
        for client in clients:
            client.socket.close()
        # What they held goes to the one that is left, and nothing stays behind.
        stalled.send(encode_flow(CLIENTS, CLIENTS * 5))
        stalled.wait(lambda: len(stalled.messages) == CLIENTS * 5, "everything again")
