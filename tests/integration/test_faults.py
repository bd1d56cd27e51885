"""Damage and failures under a standalone: what is acknowledged stays, what is damaged is never served."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from magnetar.wire import pulsar_pb2 as pb
from support.loop_images import make_image, mounted, why_impossible
from support.raw_client import RawClient
from support.sessions import Type, command, send
from support.standalone import StandaloneProcess, wait_until
from support.storage import flip, segments

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

TOPIC = "persistent://public/default/fault"
OTHER = "persistent://public/default/other"
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def publish_each(client: RawClient, topic: str, producer_id: int, bodies: list[bytes]) -> None:
    """Publishes one by one, so that each message is a block of its own on the disk."""
    client.open_producer(topic, producer_id, request_id=100 + producer_id)
    for i, body in enumerate(bodies):
        client.publish(range(i, i + 1), body, producer_id)


def read_bodies(process: StandaloneProcess, topic: str, count: int) -> list[bytes]:
    """The first `count` messages of a topic, from the beginning."""
    with RawClient(process.broker_url) as client:
        client.open_consumer(topic, subscription=f"check-{os.urandom(4).hex()}", permits=100_000)
        client.wait(lambda: len(client.messages) >= count, f"{count} messages")
        return client.bodies


def place_of(folder: Path, body: bytes) -> tuple[Path, int]:
    """Segment file and offset of a message's payload."""
    for path in segments(folder):
        at = path.read_bytes().find(body)
        if at >= 0:
            return path, at
    raise AssertionError(f"{body!r} is in no segment")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_flipped_bit_is_reported_and_never_served(standalone_folder: StandaloneProcess, end: str) -> None:
    process = standalone_folder.start()
    bodies = [b"damage-%03d" % i for i in range(40)]
    others = [b"others-%03d" % i for i in range(40)]
    with RawClient(process.broker_url) as client:
        publish_each(client, TOPIC, 1, bodies[:20])
        publish_each(client, OTHER, 2, others)
        for i, body in enumerate(bodies[20:], 20):
            client.publish(range(i, i + 1), body)
        ledger_id = client.receipts[0][1].ledger_id
    if end == "stop":
        assert process.stop() == 0
    else:
        process.kill()
    path, offset = place_of(process.data_dir / "bookie", bodies[10])
    flip(path, offset)

    process.start()
    assert read_bodies(process, OTHER, 40) == others
    with RawClient(process.broker_url) as client:
        client.open_consumer(TOPIC, subscription="all", permits=1_000)
        pattern = re.compile(rf"corrupt data in {re.escape(str(path))} at byte (\d+), ledger {ledger_id}")
        wait_until(lambda: pattern.search(process.log_text()) is not None, 10, "reported")
        found = pattern.search(process.log_text())
        assert found is not None
        assert offset - 500 < int(found[1]) <= offset
        client.open_producer(TOPIC)
        client.publish(range(100, 101), b"still here")
        assert client.bodies == bodies[: len(client.bodies)]
        assert len(client.bodies) <= 10
        # What lies behind the damage is there for a reader that passes it on purpose.
        behind = client.ask(Type.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=7).last_message_id
        client.ask(
            Type.SEEK,
            consumer_id=1,
            request_id=8,
            message_id=pb.MessageIdData(ledgerId=ledger_id, entryId=11),
        )
        client.open_consumer(TOPIC, request_id=9, subscription="all", permits=1_000)
        client.wait(lambda: b"still here" in client.bodies, "what lies behind")
        assert (behind.ledgerId, behind.entryId) == tuple(client.messages[-1].position)
        assert bodies[10] not in client.bodies
        assert client.bodies[-30:] == [*bodies[11:], b"still here"]
    assert "Traceback" not in process.log_text()
    assert process.stop() == 0


@pytest.mark.parametrize("tail", ["garbage", "half a block", "cut file"])
def test_a_torn_tail_takes_nothing_acknowledged_along(
    standalone_folder: StandaloneProcess, tail: str
) -> None:
    process = standalone_folder.start()
    bodies = [b"kept-%03d" % i for i in range(50)]
    with RawClient(process.broker_url) as client:
        publish_each(client, TOPIC, 1, bodies)
    process.kill()
    path, _ = place_of(process.data_dir / "bookie", bodies[-1])
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    # Blocks may end with zero bytes: the next one can begin a little behind what is seen.
    with path.open("r+b") as file:
        file.seek(end + 16)
        if tail == "garbage":
            file.write(bytes(range(1, 256)) * 20)
        elif tail == "half a block":
            file.write(data[end - 200 : end - 60])
        else:
            file.truncate(end + 16)
    process.start()
    assert read_bodies(process, TOPIC, 50) == bodies
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(50, 60), b"more")
    process.kill()
    process.start()
    assert read_bodies(process, TOPIC, 60) == bodies + [b"more"] * 10
    assert process.stop() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    reason = why_impossible(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    image = tmp_path / "disk.img"
    make_image(image, 128 << 20)
    with mounted(image, tmp_path / "disk") as folder:
        yield folder


@pytest.fixture
def on_small_disk(small_disk: Path, tmp_path: Path) -> Iterator[StandaloneProcess]:
    """A process that keeps its data there, not started yet; killed at the end."""
    process = StandaloneProcess(
        tmp_path / "standalone",
        data_dir=small_disk / "data",
        environment={"MAGNETAR_SEGMENT_BYTES": "4MiB"},
    )
    try:
        yield process
    finally:
        process.kill()


def fill(folder: Path) -> Path:
    """Takes all the room that is left; deleting the file gives it back."""
    file = folder / "filler"
    fd = os.open(file, os.O_CREAT | os.O_WRONLY)
    size = 1 << 20
    try:
        while size >= 512:
            try:
                os.write(fd, bytes(size))
            except OSError:
                size //= 2
        os.fsync(fd)
    finally:
        os.close(fd)
    return file


def test_a_full_disk_is_told_and_costs_nothing_acknowledged(
    small_disk: Path, on_small_disk: StandaloneProcess
) -> None:
    # This is about a disk that is really full.
    on_small_disk.environment["MAGNETAR_DISK_FULL_PERCENT"] = "100"
    process = on_small_disk.start()
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(10), bytes(1_000))
        filler = fill(small_disk)
        sent = 10
        while not client.commands(Type.CLOSE_PRODUCER) and not client.closed and sent < 1_000:
            client.send(*(send(1, i, b"%06d" % i + bytes(100_000)) for i in range(sent, sent + 10)))
            sent += 10
            client.wait(
                lambda sent=sent: len(client.receipts) >= sent or client.commands(Type.CLOSE_PRODUCER),
                "answers",
            )
        acknowledged = {sequence_id for sequence_id, _ in client.receipts}
        # An error for each message would make clients close the connection, with their consumers.
        assert not client.commands(Type.SEND_ERROR)
        refused = client.ask(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=50)
        assert refused.error == pb.ServiceNotReady
        assert f"no space in {small_disk}" in refused.message
        assert "free space there, or use a larger disk" in refused.message
    log = process.log_text()
    assert "Traceback" not in log, log
    filler.unlink()
    if process.running:
        process.stop()
    process.start()
    found = read_bodies(process, TOPIC, len(acknowledged))
    stored = {int(body[:6]) for body in found[10:]} | set(range(10))
    assert stored >= acknowledged
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(2_000, 2_010), bytes(100_000))
    assert process.stop() == 0


def test_a_disk_that_is_nearly_full_takes_no_messages_and_gives_all(
    small_disk: Path, on_small_disk: StandaloneProcess
) -> None:
    process = on_small_disk.start()
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(10), bytes(1_000))
        filler = fill(small_disk)
        client.wait(lambda: client.commands(Type.CLOSE_PRODUCER), "sent away")
        refused = client.ask(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=50)
        assert refused.error == pb.ServiceNotReady
        assert "disk_full_percent" in refused.message
        assert len(read_bodies(process, TOPIC, 10)) == 10
        filler.unlink()
        wait_until(lambda: "messages are accepted again" in process.log_text(), 60, "room")
        client.open_producer(TOPIC)
        client.publish(range(10, 20), bytes(1_000))
    assert len(read_bodies(process, TOPIC, 20)) == 20
    assert process.stop() == 0


def test_a_disk_that_has_room_again_is_used_without_a_restart(
    small_disk: Path, on_small_disk: StandaloneProcess
) -> None:
    process = on_small_disk.start()
    client = pulsar.Client(process.broker_url, operation_timeout_seconds=30, logger=QUIET)
    producer = client.create_producer(TOPIC, send_timeout_millis=0, batching_enabled=False)
    producer.send(b"before")
    filler = fill(small_disk)
    done: list[pulsar.Result] = []
    for _ in range(150):
        producer.send_async(bytes(100_000), lambda result, _: done.append(result))
    wait_until(lambda: "disk" in process.log_text().rpartition("is ready")[2], 20, "full")
    filler.unlink()
    wait_until(lambda: len(done) == 150, 30, "sent")
    assert process.running
    assert set(done) == {pulsar.Result.Ok}
    client.shutdown()
    assert process.stop() == 0


def test_consumers_drain_a_topic_while_the_disk_is_full(
    small_disk: Path, on_small_disk: StandaloneProcess
) -> None:
    # The look at the used share of the disk would send the producer away as well, perhaps before the topic.
    on_small_disk.environment["MAGNETAR_DISK_FULL_PERCENT"] = "100"
    process = on_small_disk.start()
    client = pulsar.Client(process.broker_url, operation_timeout_seconds=30, logger=QUIET)
    consumer = client.subscribe(TOPIC, "s", receiver_queue_size=10)
    producer = client.create_producer(TOPIC, send_timeout_millis=0, batching_enabled=False)
    sent, done, seen = 170, list[pulsar.Result](), list[int]()

    def drain(upto: int) -> None:
        while upto not in seen:
            message = consumer.receive(20_000)
            seen.append(int(message.data()[:6]))
            consumer.acknowledge(message)

    for i in range(20):
        producer.send(b"%06d" % i + bytes(100_000))
    filler = fill(small_disk)
    for i in range(20, sent):
        producer.send_async(b"%06d" % i + bytes(100_000), lambda result, _: done.append(result))
    wait_until(lambda: "its producers are disconnected" in process.log_text(), 20, "full")
    wait_until(lambda: not producer.is_connected(), 10, "the producer is sent away")
    stored = 20 + len(done)
    drain(stored - 1)
    assert stored < sent
    # Each once: no client was sent away, however often the producer came back meanwhile.
    assert seen == list(range(len(seen)))
    assert consumer.is_connected()
    # Each refusal once. A part of a segment that was removed may have been room for a moment.
    log = process.log_text()
    again = log.count("the topic is opened again")
    assert log.count("its producers are disconnected") == again + 1

    filler.unlink()
    wait_until(lambda: len(done) == sent - 20, 30, "sent")
    assert set(done) == {pulsar.Result.Ok}
    drain(sent - 1)
    assert list(dict.fromkeys(seen)) == list(range(sent))
    client.shutdown()
    assert process.stop() == 0
    assert "Traceback" not in process.log_text()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_loss_of_the_sync_helper_ends_the_process(standalone_folder: StandaloneProcess) -> None:
    process = standalone_folder.start()
    bodies = [b"kept-%03d" % i for i in range(20)]
    with RawClient(process.broker_url) as client:
        publish_each(client, TOPIC, 1, bodies)
        (helper,) = children(process.pid)
        # It stands still until the broker has taken the message, which the answer to PING tells.
        os.kill(helper, signal.SIGSTOP)
        client.send(send(1, 20, b"never acknowledged"), command(Type.PING))
        client.wait(lambda: client.commands(Type.PONG), "PONG")
        os.kill(helper, signal.SIGKILL)
        client.wait(lambda: client.commands(Type.SEND_ERROR), "SEND_ERROR")
        assert client.commands(Type.SEND_ERROR)[0].error == pb.PersistenceError
        assert len(client.receipts) == 20
    assert process.wait(20) == 1
    log = process.log_text()
    assert "the sync helper has died" in log or "the sync helper cannot be reached" in log
    assert "Traceback" not in log, log
    process.start()
    assert read_bodies(process, TOPIC, 20)[:20] == bodies
    assert process.stop() == 0


def test_clients_go_on_after_the_broker_stood_still(standalone_folder: StandaloneProcess) -> None:
    process = standalone_folder.start()
    client = pulsar.Client(process.broker_url, operation_timeout_seconds=20, logger=QUIET)
    consumer = client.subscribe(TOPIC, "s")
    producer = client.create_producer(TOPIC, send_timeout_millis=20_000, block_if_queue_full=True)
    results: list[pulsar.Result] = []
    resumed = threading.Event()

    def publish() -> None:
        i = 0
        while not resumed.is_set():
            producer.send_async(b"%d" % i, lambda result, _: results.append(result))
            i += 1
            resumed.wait(0.001)
        producer.flush()

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    wait_until(lambda: len(results) > 10, 10, "publishing")
    os.kill(process.pid, signal.SIGSTOP)
    # The pause is the fault itself.
    resumed.wait(2.0)
    before = len(results)
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: len(results) > before + 10, 20, "publishing again")
    resumed.set()
    publisher.join(20)
    assert not publisher.is_alive()
    assert set(results) == {pulsar.Result.Ok}
    for i in range(len(results)):
        message = consumer.receive(10_000)
        assert message.data() == b"%d" % i
        consumer.acknowledge(message)
    client.close()
    assert process.stop() == 0
