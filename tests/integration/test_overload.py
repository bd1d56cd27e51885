"""Clients that ask for too much: memory stays under its budgets, and the others make progress.

What the broker may take: what it has at start, plus 64 MiB read from producers and not yet durable
(publish_pending_bytes_max), plus 64 MiB of cached entries (cache_bytes), plus 4 MiB for each connection that
does not read (connection_output_bytes_max; what one read of the log brings comes on top), 128 MiB for all of
these together (output_bytes_max; a small read or one message for each comes on top). The tests lower
these budgets, so that exceeding them shows quickly, and leave as much again for the allocator.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from magnetar.wire.acks import encode_flow
from support.raw_client import RawClient
from support.sessions import Type, command, send
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

MIB = 1 << 20
PENDING_BYTES = 8 * MIB
CACHE_BYTES = 8 * MIB
OUTPUT_BYTES = 1 * MIB
OUTPUTS_BYTES = 16 * MIB
SLACK_BYTES = 24 * MIB
"""Fragmentation, pieces being read and written, and the objects of hundreds of clients."""


def rss_bytes(pid: int, field: str = "VmRSS") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(field)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    environment = {
        "MAGNETAR_PUBLISH_PENDING_BYTES_MAX": "8MiB",
        "MAGNETAR_CACHE_BYTES": "8MiB",
        "MAGNETAR_CONNECTION_OUTPUT_BYTES_MAX": "1MiB",
        "MAGNETAR_OUTPUT_BYTES_MAX": "16MiB",
        "MAGNETAR_SEGMENT_BYTES": "64MiB",
    }
    with StandaloneProcess(tmp_path_factory.mktemp("overload"), environment=environment) as started:
        # The admin service loads its libraries after the start: they do not belong to what a test costs.
        urlopen(f"{started.http_url}/admin/v2/brokers/ready", timeout=20).close()
        others_make_progress(started)
        yield started


class Budget:
    """How much more memory the broker may take while a test runs; `stays` is asked at the end."""

    def __init__(self, process: StandaloneProcess, bytes_max: int) -> None:
        self._pid = process.pid
        self._limit = rss_bytes(self._pid) + bytes_max
        # From here on the highest value is that of this test.
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def stays(self) -> None:
        peak = rss_bytes(self._pid, "VmHWM")
        assert peak <= self._limit, f"{(peak - self._limit) >> 20} MiB too much"


def new_topic() -> str:
    return f"persistent://public/default/overload-{uuid.uuid4().hex}"


def others_make_progress(process: StandaloneProcess) -> None:
    topic = new_topic()
    with RawClient(process.broker_url) as client:
        client.open_producer(topic)
        client.open_consumer(topic, permits=100)
        for i in range(5):
            client.publish(range(i, i + 1), b"%d" % i)
        client.wait(lambda: len(client.messages) == 5, "messages")


def flood(client: RawClient, frames: bytes, bytes_max: int) -> tuple[threading.Thread, list[int]]:
    """Writes `frames` again and again from a thread, until `bytes_max` bytes or the socket ends."""
    written = [0]

    def write() -> None:
        client.socket.settimeout(None)
        try:
            while written[0] < bytes_max:
                written[0] += client.socket.send(frames)
        except OSError:
            return

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread, written


def end_flood(client: RawClient, thread: threading.Thread) -> None:
    client.shut_down()
    thread.join(10)
    assert not thread.is_alive()


def stalls(written: list[int]) -> None:
    """Returns when nothing more was written for a while: the broker has stopped to read."""
    last = [-1, 0]

    def stalled() -> bool:
        last[1] = last[1] + 1 if written[0] == last[0] else 0
        last[0] = written[0]
        return last[1] >= 30

    wait_until(stalled, 30, "stalled")


@pytest.mark.parametrize("what", ["SEND", "PING", "LOOKUP"])
def test_who_never_reads_answers_is_not_read(process: StandaloneProcess, what: str) -> None:
    budget = Budget(process, PENDING_BYTES + CACHE_BYTES + OUTPUT_BYTES + SLACK_BYTES)
    topic = new_topic()
    with RawClient(process.broker_url, receive_buffer_bytes=4_096) as client:
        client.open_producer(topic)
        frames = {
            "SEND": b"".join(send(1, i) for i in range(1_000)),
            "PING": command(Type.PING) * 5_000,
            "LOOKUP": b"".join(command(Type.LOOKUP, topic=topic, request_id=i) for i in range(1_000)),
        }[what]
        thread, written = flood(client, frames, 1 << 40)
        wait_until(lambda: written[0] > MIB, 20, "flooded")
        others_make_progress(process)
        stalls(written)
        others_make_progress(process)
        end_flood(client, thread)
    budget.stays()


def test_who_asks_for_long_lists_and_never_reads(process: StandaloneProcess) -> None:
    """An answer is 400 KiB: those to one read of requests alone would be a gigabyte."""
    topic = "overload-" + uuid.uuid4().hex
    process.admin("PUT", f"persistent/public/default/{topic}/partitions", 5000)
    with RawClient(process.broker_url) as client:
        fields = {"namespace": "public/default", "topics_pattern": f"persistent://public/default/{topic}.*"}
        listed = client.ask(Type.GET_TOPICS_OF_NAMESPACE, request_id=1, **fields)
        assert len(listed.topics) >= 5_000
    budget = Budget(process, CACHE_BYTES + PENDING_BYTES + 4 * OUTPUT_BYTES + SLACK_BYTES)
    frames = [
        b"".join(command(kind, request_id=i, **fields, **more) for i in range(1_000))
        for kind, fields, more in (
            (Type.GET_TOPICS_OF_NAMESPACE, {"namespace": "public/default"}, {}),
            (Type.WATCH_TOPIC_LIST, fields, {"watcher_id": 1}),
        )
    ]
    clients = [RawClient(process.broker_url, receive_buffer_bytes=4_096) for _ in frames]
    floods = [flood(client, each, 1 << 40) for client, each in zip(clients, frames, strict=True)]
    for _, written in floods:
        stalls(written)
    others_make_progress(process)
    for client, (thread, _) in zip(clients, floods, strict=True):
        end_flood(client, thread)
    for client in clients:
        client.socket.close()
    budget.stays()


def test_producers_faster_than_the_disk(process: StandaloneProcess) -> None:
    budget = Budget(process, PENDING_BYTES + CACHE_BYTES + 4 * OUTPUT_BYTES + SLACK_BYTES)
    topic = new_topic()
    clients = [RawClient(process.broker_url) for _ in range(4)]
    floods = []
    for number, client in enumerate(clients):
        client.open_producer(f"{topic}-{number}")
        frames = b"".join(send(1, i, bytes(64 << 10)) for i in range(8))
        floods.append(flood(client, frames, 24 * MIB))
    others_make_progress(process)
    for client, (thread, written) in zip(clients, floods, strict=True):
        client.socket.settimeout(None)
        frame_bytes = len(send(1, 0, bytes(64 << 10)))
        thread.join(30)
        assert not thread.is_alive()
        client.wait(lambda c=client, n=written[0] // frame_bytes: len(c.receipts) >= n, "receipts")
        client.socket.close()
    budget.stays()


def test_consumers_that_never_read(process: StandaloneProcess) -> None:
    topic = new_topic()
    with RawClient(process.broker_url) as publisher:
        publisher.open_producer(topic)
        for i in range(10):
            publisher.publish(range(4 * i, 4 * i + 4), bytes(1 << 20))
        budget = Budget(process, CACHE_BYTES + 4 * (2 * OUTPUT_BYTES) + SLACK_BYTES)
        deaf = [RawClient(process.broker_url, receive_buffer_bytes=4_096) for _ in range(4)]
        for number, client in enumerate(deaf):
            client.open_consumer(topic, subscription=f"deaf-{number}")
            client.send(*(encode_flow(1, (1 << 31) - 1) for _ in range(10)))
        others_make_progress(process)
        with RawClient(process.broker_url) as reader:
            reader.open_consumer(topic, subscription="reads", permits=1_000)
            reader.wait(lambda: len(reader.messages) == 40, "messages")
        budget.stays()
        # One of them wakes up: nothing was lost on the way.
        deaf[0].wait(lambda: len(deaf[0].messages) == 40, "messages")
        for client in deaf:
            client.socket.close()


def test_a_hundred_consumers_that_never_read_share_one_budget(process: StandaloneProcess) -> None:
    """Each alone is within its own budget: without a common one they would fill 100 to 200 MiB."""
    topic = new_topic()
    with RawClient(process.broker_url) as publisher:
        publisher.open_producer(topic)
        for i in range(24):
            publisher.publish(range(20 * i, 20 * i + 20), bytes(64 << 10))
        budget = Budget(process, CACHE_BYTES + OUTPUTS_BYTES + 100 * (64 << 10) + SLACK_BYTES)
        deaf = [RawClient(process.broker_url, receive_buffer_bytes=4_096) for _ in range(100)]
        for number, client in enumerate(deaf):
            client.open_consumer(topic, subscription=f"deaf-{number}")
            client.send(encode_flow(1, 10_000))
        others_make_progress(process)
        with RawClient(process.broker_url) as reader:
            reader.open_consumer(topic, subscription="reads", permits=1_000)
            reader.wait(lambda: len(reader.messages) == 480, "messages")
        assert output_gauges(process)["magnetar_output_bytes"] <= OUTPUTS_BYTES + 100 * (65 << 10)
        budget.stays()
        # Some wake up: nothing was lost on the way.
        for client in deaf[::20]:
            client.wait(lambda c=client: len(c.messages) == 480, "messages")
        for client in deaf:
            client.socket.close()
    wait_until(lambda: output_gauges(process)["magnetar_output_bytes"] == 0, 20, "given back")
    others_make_progress(process)


def output_gauges(process: StandaloneProcess) -> dict[str, int]:
    """What waits for clients, as `/metrics` says it."""
    text = urlopen(f"{process.http_url}/metrics", timeout=20).read().decode()
    found = [line.split() for line in text.splitlines() if line.startswith("magnetar_output_")]
    return {name.partition("{")[0]: int(float(value)) for name, value in found}


def test_a_thousand_consumers_on_one_topic(process: StandaloneProcess) -> None:
    budget = Budget(process, CACHE_BYTES + SLACK_BYTES)
    topic = new_topic()
    clients = [RawClient(process.broker_url) for _ in range(10)]
    for client in clients:
        client.send(
            *(
                command(Type.SUBSCRIBE, topic=topic, consumer_id=i, request_id=i, subscription="s", subType=1)
                + encode_flow(i, 10)
                for i in range(100)
            )
        )
    for client in clients:
        client.wait(lambda c=client: len(c.commands(Type.SUCCESS)) == 100, "subscribed")
        client.send(*(encode_flow(i, 10) for i in range(100)))
    with RawClient(process.broker_url) as publisher:
        publisher.open_producer(topic)
        publisher.publish(range(3_000), b"x" * 100)
        wait_until(lambda: sum(map(received, clients)) == 3_000, 20, "delivered")
        others_make_progress(process)
    for client in clients:
        client.socket.close()
    budget.stays()


def received(client: RawClient) -> int:
    """Takes what has arrived; messages by now."""
    client.read(0.001)
    return len(client.messages)


def test_five_hundred_topics_at_once(process: StandaloneProcess) -> None:
    budget = Budget(process, CACHE_BYTES + PENDING_BYTES + SLACK_BYTES)
    topic = new_topic()
    with RawClient(process.broker_url) as client:
        client.send(
            *(command(Type.PRODUCER, topic=f"{topic}-{i}", producer_id=i, request_id=i) for i in range(500))
        )
        others_make_progress(process)
        client.wait(lambda: len(client.commands(Type.PRODUCER_SUCCESS)) == 500, "producers")
        client.send(*(send(i, 0) for i in range(500)))
        client.wait(lambda: len(client.receipts) == 500, "receipts")
    budget.stays()
