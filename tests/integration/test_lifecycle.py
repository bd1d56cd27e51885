"""How a standalone starts, refuses to start, and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ReceiptRun
from support.raw_client import RawClient
from support.sessions import Type, send
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("start")]

TOPIC = "persistent://public/default/life"
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def refused(*options: str, data: Path | None, environment: dict[str, str] | None = None) -> str:
    """Starts a process that must not start: what it says, which must be one line."""
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--http-port", "0", *options]
    if "--port" not in options:
        arguments += ["--port", "0"]
    if data is not None:
        arguments += ["--data", str(data)]
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("magnetar: ")
    return lines[0]


def test_a_python_without_assertions_is_refused(tmp_path: Path) -> None:
    said = refused(data=tmp_path / "data", environment={"PYTHONOPTIMIZE": "1"})
    assert "without assertions" in said
    assert not (tmp_path / "data").exists()


def is_close_producer(seen: object) -> bool:
    return isinstance(seen, pb.BaseCommand) and seen.type == Type.CLOSE_PRODUCER


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_port_in_use(tmp_path: Path, option: str) -> None:
    with listening() as port:
        line = refused(option, str(port), data=tmp_path / "data")
    assert f"port {port}" in line
    assert "in use" in line
    assert option in line


def test_a_data_folder_in_use(standalone_folder: StandaloneProcess) -> None:
    standalone_folder.start()
    line = refused(data=standalone_folder.data_dir)
    assert str(standalone_folder.data_dir) in line
    assert f"in use by process {standalone_folder.pid}" in line
    assert "choose another" in line
    with RawClient(standalone_folder.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(3))


@pytest.mark.parametrize("place", ["FORMAT", "bookie/FORMAT"])
def test_a_data_folder_of_a_newer_format(standalone_folder: StandaloneProcess, place: str) -> None:
    standalone_folder.start()
    standalone_folder.stop()
    file = standalone_folder.data_dir / place
    before = file.read_text()
    file.write_text(re.sub(r"\d+", "99", before, count=1))
    line = refused(data=standalone_folder.data_dir)
    assert "99" in line
    assert str(standalone_folder.data_dir) in line
    file.write_text(before)
    standalone_folder.start()
    assert standalone_folder.stop() == 0


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(data=tmp_path / "file" / "data")
    assert str(tmp_path / "file" / "data") in line
    assert "--data" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes wherever it likes")
def test_a_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    line = refused(data=folder)
    assert str(folder) in line
    assert "--data" in line


def test_a_ready_file_that_cannot_be_written(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "ready"
    assert str(place) in refused("--ready-file", str(place), data=tmp_path / "data")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends(standalone_folder: StandaloneProcess, number: signal.Signals) -> None:
    """Everything stored was acknowledged and the other way round: nothing is lost and nothing sent twice."""
    process = standalone_folder.start()
    ready = process.folder / "ready.json"
    assert ready.exists()
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.open_consumer(TOPIC, permits=1)
        client.publish(range(1))
        client.wait(lambda: client.messages, "delivery")
        first = client.messages[0].position
        client.ask(
            Type.ACK,
            consumer_id=1,
            ack_type=pb.CommandAck.Individual,
            request_id=9,
            message_id=[pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)],
        )
        client.send(*(send(1, i, b"%d" % i) for i in range(1, 5_000)))
        client.wait(lambda: len(client.receipts) > 1, "receipts")
        os.kill(process.pid, number)
        client.wait_closed()
        acknowledged = [position for _, position in client.receipts]
        sent_away = next(i for i, seen in enumerate(client.seen) if is_close_producer(seen))
        # Official clients send what has no receipt again, and close a connection on which one comes later.
        assert not any(isinstance(seen, ReceiptRun) for seen in client.seen[sent_away:])
    assert process.wait(10) == 0
    assert not ready.exists()
    assert "Traceback" not in process.log_text()
    with process.start(), RawClient(process.broker_url) as client:
        client.open_consumer(TOPIC, subscription="all", permits=10_000)
        client.open_producer(TOPIC)
        client.publish(range(5_000, 5_001), b"last")
        client.wait(lambda: b"last" in client.bodies, "everything")
        assert [message.position for message in client.messages[:-1]] == acknowledged
        client.open_consumer(TOPIC, consumer_id=2, request_id=3, permits=1)
        client.wait(lambda: client.messages[-1].consumer_id == 2, "delivery")
        assert client.messages[-1].position != first, "an acknowledgement before the stop was lost"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_with_official_clients(standalone_folder: StandaloneProcess, number: signal.Signals) -> None:
    process = standalone_folder.start()
    client = pulsar.Client(process.broker_url, operation_timeout_seconds=30, logger=QUIET)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    client.create_producer(TOPIC).send(b"x")
    consumer.acknowledge(consumer.receive(10_000))
    os.kill(process.pid, number)
    assert process.wait(10) == 0
    client.shutdown()


def test_a_stop_leaves_nothing_to_recover(standalone_folder: StandaloneProcess) -> None:
    process = standalone_folder.start()
    with RawClient(process.broker_url) as client:
        client.open_producer(TOPIC)
        client.publish(range(100))
    assert process.stop() == 0
    segments = sorted((process.data_dir / "bookie" / "segments").glob("*.seg"))
    before = {path.name: path.stat().st_size for path in segments}
    assert all(size < 1 << 20 for size in before.values()), "sealed segments hold no room for more"
    process.start()
    with RawClient(process.broker_url) as client:
        client.open_consumer(TOPIC, permits=1_000)
        client.wait(lambda: len(client.messages) == 100, "messages")
    assert process.stop() == 0
    after = {path.name: path.stat().st_size for path in segments}
    assert after == before, "the segments of the run before were changed"


def test_a_second_signal_ends_at_once(standalone_folder: StandaloneProcess) -> None:
    process = standalone_folder.start()
    # Stopped, so that both signals are there before either is handled.
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(10) in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
    process.start()
    assert process.stop() == 0


def test_a_signal_while_starting(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        folder = tmp_path / number.name
        data = ("--data", str(folder))
        # Shells have what they run in the background ignore SIGINT, which would be inherited.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            started = subprocess.Popen(
                [sys.executable, "-m", "magnetar", "standalone", "--port", "0", "--http-port", "0", *data],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        finally:
            signal.signal(signal.SIGINT, before)
        try:
            wait_until((folder / "LOCK").exists, 20, "starting")
            started.send_signal(number)
            _, errors = started.communicate(timeout=20)
            assert started.returncode in (0, -number), errors
            assert b"Traceback" not in errors
        finally:
            started.kill()
            started.wait()


def test_ephemeral_keeps_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = StandaloneProcess(tmp_path / "e", ephemeral=True, environment={"TMPDIR": str(temporary)})
    for _ in range(2):
        with process.start(), RawClient(process.broker_url) as client:
            assert not client.ask(
                Type.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=9
            ).topics
            client.open_producer(TOPIC)
            client.publish(range(10))
    assert not process.data_dir.exists()
    assert list(temporary.iterdir()) == []


def test_free_ports_are_told(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "a") as first, StandaloneProcess(tmp_path / "b") as second:
        urls = [first.broker_url, first.http_url, second.broker_url, second.http_url]
        assert len(set(urls)) == 4
        assert all(int(url.rpartition(":")[2]) > 0 for url in urls)
        for process in (first, second):
            assert process.broker_url in process.log_text()
            assert process.http_url in process.log_text()
            with urlopen(f"{process.http_url}/admin/v2/brokers/health", timeout=10) as answer:
                assert answer.status == 200


def test_a_stop_does_not_wait_for_clients_that_do_not_read(standalone_folder: StandaloneProcess) -> None:
    process = standalone_folder.start()
    with (
        RawClient(process.broker_url) as publisher,
        RawClient(process.broker_url, receive_buffer_bytes=4_096) as deaf,
    ):
        publisher.open_producer(TOPIC)
        deaf.open_consumer(TOPIC, permits=1_000_000)
        publisher.publish(range(20), bytes(1 << 20))
        ended = threading.Event()

        def stop() -> None:
            os.kill(process.pid, signal.SIGTERM)
            process.wait(20)
            ended.set()

        threading.Thread(target=stop, daemon=True).start()
        assert ended.wait(20), "the process waits for its clients"
