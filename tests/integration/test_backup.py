"""Backups of a standalone that is in use, and standalones made of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pulsar
import pytest

from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]

SEGMENT_BYTES = 4 << 20
SMALL = {"MAGNETAR_SEGMENT_BYTES": str(SEGMENT_BYTES), "MAGNETAR_LEDGER_ROLLOVER_MIN_SECONDS": "0"}


def magnetar(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def make(broker: StandaloneProcess, repository: Path) -> dict[str, int]:
    said = magnetar("backup", "create", str(repository), "--admin-url", broker.http_url, "-o", "json")
    return dict(json.loads(said))


def restored(
    repository: Path, folder: Path, backup_id: str = "", options: tuple[str, ...] = ()
) -> StandaloneProcess:
    chosen = (backup_id,) if backup_id else ()
    magnetar("restore", str(repository), *chosen, "--data", str(folder / "data"))
    return StandaloneProcess(folder, data_dir=folder / "data", options=options)


def everything(broker: StandaloneProcess, topic: str, count: int, *, again: bool = False) -> list[bytes]:
    """The first messages of a topic. `again`: one may come twice, as after a client has connected anew."""
    client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found: list[bytes] = []
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while len(found) < count:
            data = reader.read_next(20_000).data()
            if not (again and data in found):
                found.append(data)
        return found
    finally:
        client.close()


def unacknowledged(broker: StandaloneProcess, topic: str) -> list[bytes]:
    client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(topic, "billing")
        found = []
        try:
            while True:
                found.append(consumer.receive(2_000).data())
        except pulsar.Timeout:
            return found
    finally:
        client.close()


class Traffic:
    """Publishes, consumes and deletes while a backup is made."""

    def __init__(self, broker: StandaloneProcess, topic: str) -> None:
        self._stop = threading.Event()
        self.acknowledged = 0
        self._topic = topic
        self._url = broker.broker_url
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        client = pulsar.Client(self._url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(self._topic)
        # Consumed at once: its ledgers are trimmed and its segments die while the backup is made.
        short = client.create_producer(f"{self._topic}-short", batching_enabled=False)
        consumer = client.subscribe(f"{self._topic}-short", "s")
        while not self._stop.is_set():
            producer.send(b"%08d" % self.acknowledged + bytes(2_000))
            self.acknowledged += 1
            short.send(bytes(60_000))
            consumer.acknowledge(consumer.receive(10_000))
        client.close()


# Of three bookies, two have an entry: which two changes from one to the next.
SPREAD = {"MAGNETAR_LEDGER_ENSEMBLE_SIZE": "3"}


PROCESSES = ("--processes", "2")
BOTH = pytest.mark.nightly("processes with bookies: both at once")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone"),
        pytest.param(("--bookies", "3"), id="bookies", marks=BOTH),
        pytest.param(PROCESSES, id="processes", marks=BOTH),
        pytest.param((*PROCESSES, "--bookies", "3"), id="processes-bookies"),
    ],
)
def test_a_backup_under_load_has_what_was_acknowledged_before_it(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    repository = tmp_path / "backups"
    environment = {**SMALL, **SPREAD} if "--bookies" in options else SMALL
    again = "--processes" in options  # a bundle may move meanwhile
    with StandaloneProcess(tmp_path / "original", environment=environment, options=options) as original:
        with Traffic(original, "orders") as traffic:
            made = []
            counts = []
            for _ in range(3):
                before = traffic.acknowledged
                while traffic.acknowledged < before + 100:
                    threading.Event().wait(0.01)
                counts.append(traffic.acknowledged)
                made.append(make(original, repository))
        assert magnetar("backup", "verify", str(repository), "--all") == "every file matches its checksum\n"
        # Beside the living original.
        for number, (count, each) in enumerate(zip(counts, made, strict=True)):
            folder = tmp_path / f"copy-{number}"
            with restored(repository, folder, str(each["backup"]), options) as copy:
                found = everything(copy, "orders", count, again=again)
                assert [int(message[:8]) for message in found] == list(range(count))
                client = pulsar.Client(copy.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
                client.create_producer("orders").send(b"the copy takes messages")
                client.close()
        found = everything(original, "orders", traffic.acknowledged, again=again)
        assert len(found) == traffic.acknowledged


def test_the_second_backup_copies_what_is_new(tmp_path: Path) -> None:
    repository = tmp_path / "backups"
    with StandaloneProcess(tmp_path / "original", environment=SMALL) as original:
        client = pulsar.Client(original.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe("orders", "billing").close()
        producer = client.create_producer("orders")
        for _ in range(300):
            producer.send(os.urandom(60_000))
        first = make(original, repository)
        producer.send(b"one more")
        second = make(original, repository)
        client.close()
        assert second["bytes"] >= first["bytes"] > 16 << 20
        assert second["copiedBytes"] < SEGMENT_BYTES + (1 << 20)
        gone = json.loads(magnetar("backup", "prune", str(repository), "--keep", "1", "-o", "json"))
        assert gone["deleted"] == [first["backup"]]
        with restored(repository, tmp_path / "copy") as copy:
            found = unacknowledged(copy, "orders")
            assert len(found) == 301
            assert found[-1] == b"one more"


def test_a_folder_that_nobody_uses_is_backed_up_too(
    standalone_folder: StandaloneProcess, tmp_path: Path
) -> None:
    repository = tmp_path / "backups"
    with standalone_folder.start() as original:
        client = pulsar.Client(original.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = client.subscribe("orders", "billing")
        producer = client.create_producer("orders")
        for number in range(10):
            producer.send(b"%d" % number)
        for _ in range(4):
            consumer.acknowledge(consumer.receive(10_000))
        client.close()
        refused = magnetar("backup", "create", str(repository), "--data", str(original.data_dir), code=1)
        assert "in use" in refused
        original.kill()
    magnetar("backup", "create", str(repository), "--data", str(standalone_folder.data_dir))
    with restored(repository, tmp_path / "copy") as copy:
        assert unacknowledged(copy, "orders") == [b"%d" % number for number in range(4, 10)]


def test_a_damaged_backup_is_found_and_not_restored(
    standalone_folder: StandaloneProcess, tmp_path: Path
) -> None:
    repository = tmp_path / "backups"
    with standalone_folder.start() as original:
        make(original, repository)
    largest = max((repository / "files").glob("*/*"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    assert "damaged" in magnetar("backup", "verify", str(repository), code=7)
    assert "damaged" in magnetar("restore", str(repository), "--data", str(tmp_path / "copy"), code=1)
    assert not (tmp_path / "copy").exists()
    assert "not empty" in magnetar(
        "restore", str(repository), "--data", str(standalone_folder.data_dir), code=1
    )


def test_a_stopped_folder_with_bookies_is_backed_up_and_restored_elsewhere(tmp_path: Path) -> None:
    repository = tmp_path / "backups"
    options = ("--bookies", "2")
    with StandaloneProcess(tmp_path / "original", options=options) as original:
        client = pulsar.Client(original.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe("orders", "billing").close()
        producer = client.create_producer("orders")
        for number in range(10):
            producer.send(b"%d" % number)
        client.close()
    data = str(original.data_dir)
    magnetar("backup", "create", str(repository), "--data", data)
    again = json.loads(magnetar("backup", "create", str(repository), "--data", data, "-o", "json"))
    assert again["copiedBytes"] < 1 << 20, "what did not change is not copied again"
    magnetar("restore", str(repository), "--data", str(tmp_path / "copy" / "data"))
    with original, StandaloneProcess(tmp_path / "copy", options=options) as copy:
        for broker in (original, copy):
            assert unacknowledged(broker, "orders") == [b"%d" % number for number in range(10)]
            client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            client.create_producer("orders").send(b"both take messages")
            client.close()
