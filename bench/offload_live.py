"""What does offloading cost publishers, and how fast do consumers read history back?

    python -m bench.offload_live [--mib N] [--seconds S] [--json FILE]

First a publisher at a fixed rate of 1 KiB messages, alone, then while a backlog of N MiB in other topics is
offloaded: p50 and p99 of its receipts, and the ratio. The broker, with its helper process, has core 0 then,
and the generator core 1. Then a topic of 100 B messages in batches, and one unbatched: read by one reader
from the message store, and again when it lies in Parquet files alone, by the generator's driver, which reads
only what it must, and by the official client. All cores are there for all then; the store is a folder.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

from bench import latency, proc
from bench.meter import Meter, no_garbage_collection
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.scan import BrokerAnswerError
from bench.spark_program import Amount, Given, main
from bench.throughput import publish_all
from magnetar.base.names import TopicName
from magnetar.client.client import Client

RATE_PER_S: Final = 5_000
PAYLOAD_BYTES: Final = 1024
WARM_UP_S: Final = 2.0
TOPICS: Final = 4
DEADLINE_S: Final = 600.0
STALL_S: Final = 60.0
OFFICIAL_MESSAGES: Final = 500_000
OFFICIAL_QUEUE: Final = 100_000
READ_BACK: Final = {"batched": (2_000_000, 1000), "unbatched": (300_000, 1)}
"""100 B messages, and how many of them an entry holds."""


class History:
    """Topics that are filled and offloaded."""

    def __init__(self, given: Given) -> None:
        self.driver = PulsarDriver(given.service_url)
        self.name = f"bench-{uuid4().hex[:8]}"
        self._service_url = given.service_url
        self._client = Client(given.service_url, admin_url=given.http_url)
        retained = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self._client.admin.call("POST", "/admin/v2/namespaces/public/default/retention", retained)

    def fill(self, topic: str, *, messages: int, payload_bytes: int, per_entry: int) -> Publisher:
        """Publishes, and ends the ledger."""
        lane = self.driver.lane(topic, payload_bytes=payload_bytes, messages_per_entry=per_entry)
        publisher = Publisher(lane, entries_max=messages // per_entry)
        publish_all([publisher], Meter(None))
        lane.socket.close()
        self._call("PUT", topic, "/unload")
        return publisher

    def _call(self, method: str, topic: str, path: str, body: object = None) -> object:
        return self._client.admin.call(method, f"/admin/v2/persistent/public/default/{topic}{path}", body)

    def offload(self, topic: str) -> None:
        """Begins to copy all ledgers that are sealed."""
        ledgers = self._client.admin.internal_stats(TopicName.parse(topic))["ledgers"]
        last = {"ledgerId": ledgers[-1]["ledgerId"], "entryId": 0, "partitionIndex": -1}
        self._call("PUT", topic, "/offload", last)

    def running(self, topic: str) -> bool:
        """Whether it is being copied. Raises SystemExit when that failed."""
        found = self._call("GET", topic, "/offload")
        assert isinstance(found, dict)
        if found["status"] == "ERROR":
            raise SystemExit(f"{topic} was not offloaded: {found['lastError']}")
        return bool(found["status"] == "RUNNING")

    def ended(self, *topics: str) -> None:
        """Waits until nothing of these is offloaded any more. Raises SystemExit when that takes too long."""
        end_s = time.monotonic() + DEADLINE_S
        while any(map(self.running, topics)):
            if time.monotonic() > end_s:
                raise SystemExit(f"offloading {', '.join(topics)} does not end")
            time.sleep(0.2)

    def delete_local(self, topic: str) -> None:
        """Waits until the files are the only copy."""
        self._client.admin.call("PUT", "/admin/v2/namespaces/public/default/offloadDeletionLagMs", 0)
        end_s = time.monotonic() + DEADLINE_S
        while True:
            ledgers = self._client.admin.internal_stats(TopicName.parse(topic))["ledgers"]
            if all(each["offloadedTo"]["onlyCopy"] for each in ledgers if each["offloaded"]):
                return
            if time.monotonic() > end_s:
                raise SystemExit(f"{topic} does not leave the message store")
            time.sleep(0.2)

    def read(self, topic: str, publisher: Publisher) -> float:
        """Messages a second of a reader from the first message to the last."""
        entries = publisher.entries_sent
        reader = self.driver.consumer(topic, queue_messages=1_000_000, backlog=True)
        poll = select.poll()
        poll.register(reader.socket, select.POLLIN)
        with no_garbage_collection():
            begun_s = time.perf_counter()
            reader.start(publisher.template)
            while reader.entries_received < entries:
                if not poll.poll(STALL_S * 1000):
                    raise BrokerAnswerError(
                        f"nothing came after {reader.entries_received} of {entries} entries"
                    )
                reader.receive()
            taken_s = time.perf_counter() - begun_s
        reader.socket.close()
        return entries * publisher.template.messages_per_entry / taken_s

    def read_official(self, topic: str, messages: int) -> float:
        """Messages a second of a reader of the official client."""
        import pulsar

        client = pulsar.Client(
            self._service_url, io_threads=1, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            name = f"persistent://public/default/{topic}"
            reader = client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=OFFICIAL_QUEUE)
            with no_garbage_collection():
                begun_s = time.perf_counter()
                for _ in range(messages):
                    reader.read_next(int(STALL_S * 1000))
                return messages / (time.perf_counter() - begun_s)
        finally:
            client.close()


@contextmanager
def apart(broker: int | None) -> Iterator[None]:
    """The broker, and what it starts in the body, on core 0, this process on core 1; where they may."""
    before = os.sched_getaffinity(0)
    if broker is None or len(before) < 2:
        yield
        return
    first, second, *_ = sorted(before)
    _pin(broker, {first})
    os.sched_setaffinity(0, {second})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        _pin(broker, before)


def _pin(root: int, cores: set[int]) -> None:
    for process in proc.tree(root, proc.read_all()):
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)


def _receipts(history: History, seconds: float) -> dict[str, float]:
    found = latency.run(
        history.driver,
        f"{history.name}-live-{uuid4().hex[:4]}",
        Meter(None),
        rate_per_s=RATE_PER_S,
        payload_bytes=PAYLOAD_BYTES,
        end_to_end=False,
        warm_up_s=WARM_UP_S,
        seconds=seconds,
    )
    return found.metrics


def run(given: Given) -> dict[str, float]:
    """All figures."""
    history = History(given)
    results: dict[str, float] = {}
    topics = [f"{history.name}-{number}" for number in range(TOPICS)]
    for topic in topics:
        messages = (given.amount << 20) // TOPICS // PAYLOAD_BYTES
        history.fill(topic, messages=messages, payload_bytes=PAYLOAD_BYTES, per_entry=100)
    with apart(given.pid):
        alone = _receipts(history, given.seconds)
        begun_s = time.monotonic()
        for topic in topics:
            history.offload(topic)
        beside = _receipts(history, given.seconds)
    still = sum(map(history.running, topics))
    if not still:
        raise SystemExit("offloading was done before the measurement was: give it more --mib")
    for kind, found in (("alone", alone), ("offloading", beside)):
        for name in ("p50_ms", "p99_ms"):
            results[f"{name}_{kind}"] = found[name]
    results["p99_ratio"] = beside["p99_ms"] / alone["p99_ms"]
    history.ended(*topics)
    results["offload_mb_per_s"] = given.amount * 1.048576 / (time.monotonic() - begun_s)
    for kind, (messages, per_entry) in READ_BACK.items():
        topic = f"{history.name}-{kind}"
        publisher = history.fill(topic, messages=messages, payload_bytes=100, per_entry=per_entry)
        local = history.read(topic, publisher)
        official_messages = min(messages, OFFICIAL_MESSAGES)
        official = history.read_official(topic, official_messages)
        history.offload(topic)
        history.ended(topic)
        history.delete_local(topic)
        files = history.read(topic, publisher)
        results[f"read_local_messages_per_s_{kind}"] = local
        results[f"read_files_messages_per_s_{kind}"] = files
        results[f"read_percent_of_local_{kind}"] = 100 * files / local
        official_files = history.read_official(topic, official_messages)
        results[f"official_local_messages_per_s_{kind}"] = official
        results[f"official_files_messages_per_s_{kind}"] = official_files
        results[f"official_percent_of_local_{kind}"] = 100 * official_files / official
    return results


if __name__ == "__main__":
    # What leaves the message store does so in rounds.
    os.environ.setdefault("MAGNETAR_OFFLOAD_INTERVAL_SECONDS", "1")
    main(__doc__, Amount("mib", 2048, "MiB to offload (%(default)s)"), 20.0, run, form=",.2f")
