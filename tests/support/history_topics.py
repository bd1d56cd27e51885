"""A topic whose history is offloaded, with the official client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import pulsar

from support.files import files_in
from support.official import QUIET
from support.standalone import StandaloneProcess, wait_until

DEADLINE_S = 240.0
"""For what a machine with other work may take long for: a process that starts, a ledger that is converted."""
TOPIC = "persistent://public/default/history"
PATH = TOPIC.replace("://", "/")
KEEP_EVERYTHING = {
    "MAGNETAR_RETENTION_MINUTES": "-1",
    "MAGNETAR_RETENTION_MIB": "-1",
    "MAGNETAR_OFFLOAD_INTERVAL_SECONDS": "1",
    "MAGNETAR_OFFLOAD_OWNER_POLL_SECONDS": "1",
    # A process more, and two seconds of it: tests of tables ask for it.
    "MAGNETAR_LAKE_CATALOG": "none",
}


class Seen(NamedTuple):
    """What a consumer can tell of a message."""

    ledger_id: int
    entry_id: int
    batch_index: int
    data: bytes
    key: str
    properties: tuple[tuple[str, str], ...]
    publish_ms: int
    event_ms: int


def seen(message: pulsar.Message) -> Seen:
    where = message.message_id()
    return Seen(
        where.ledger_id(),
        where.entry_id(),
        where.batch_index(),
        message.data(),
        message.partition_key(),
        tuple(sorted(message.properties().items())),
        message.publish_timestamp(),
        message.event_timestamp(),
    )


class HistoryTopic:
    """Publishes ledger by ledger, offloads, reads."""

    def __init__(self, process: StandaloneProcess, topic: str = TOPIC) -> None:
        self.process = process
        self.topic = topic
        self.path = topic.replace("://", "/")
        self.sent = 0

    def client(self) -> pulsar.Client:
        return pulsar.Client(self.process.broker_url, operation_timeout_seconds=30, logger=QUIET)

    def fill_ledger(self, count: int = 400) -> None:
        """Publishes messages, batched and not, and goes on in a new ledger."""
        client = self.client()
        for batching in (True, False):
            producer = client.create_producer(
                self.topic,
                batching_enabled=batching,
                block_if_queue_full=True,
                compression_type=pulsar.CompressionType.LZ4 if batching else pulsar.CompressionType.NONE,
            )
            for _ in range(count // 2):
                number = self.sent
                producer.send_async(
                    b"%d " % number * 40,
                    None,
                    partition_key=f"key {number % 17}",
                    properties={"number": str(number)},
                    event_timestamp=number + 1,
                )
                self.sent += 1
            producer.flush()
            producer.close()
        client.close()
        self.process.admin("PUT", f"{self.path}/unload")

    def read(self, start: Any = pulsar.MessageId.earliest) -> list[Seen]:
        """Everything from `start` on."""
        client = self.client()
        reader = client.create_reader(self.topic, start)
        found = []
        while reader.has_message_available():
            found.append(seen(reader.read_next(int(DEADLINE_S * 1000))))
        client.close()
        return found

    def ledgers(self) -> list[dict[str, Any]]:
        """Ledgers that hold something."""
        stats = self.process.admin("GET", f"{self.path}/internalStats")
        return [ledger for ledger in stats["ledgers"] if ledger["entries"]]

    def request(self) -> None:
        """Asks for everything that is sealed to be offloaded."""
        stats = self.process.admin("GET", f"{self.path}/internalStats")
        last = {"ledgerId": stats["ledgers"][-1]["ledgerId"], "entryId": 0, "partitionIndex": -1}
        self.process.admin("PUT", f"{self.path}/offload", last)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.process.admin("GET", f"{self.path}/offload")
        return answer

    def offload(self) -> None:
        """Offloads everything that is sealed."""
        self.request()
        wait_until(lambda: self.status()["status"] != "RUNNING", DEADLINE_S, "offloaded")
        status = self.status()
        assert status["status"] == "SUCCESS", (status, self.process.log_text())

    def delete_local(self) -> None:
        """Waits until what is offloaded has left the bookie."""
        self.process.admin("PUT", "namespaces/public/default/offloadDeletionLagMs", 0)
        wait_until(
            lambda: all(ledger.get("offloadedTo", {}).get("onlyCopy") for ledger in self.ledgers()),
            DEADLINE_S,
            "only in the store",
        )


def objects_of(folder: Path) -> set[str]:
    """Attempts that have an object in a folder that is a store."""
    return {path.name[20:56] for path in files_in(folder, "*.parquet*")}


def appears(folder: Path, pattern: str) -> None:
    """Returns as soon as there is a file that matches."""
    end = time.monotonic() + DEADLINE_S
    while not files_in(folder, pattern):
        assert time.monotonic() < end, f"no {pattern} in {folder}"
        time.sleep(0.002)
