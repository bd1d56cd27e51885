"""The clients of one member of the cluster: a program of its own, with the official Python client.

    python -m chaos.workload --name c1 --service-url pulsar://… --folder F --rate 40

It publishes to every topic and consumes every subscription, and notes all of it in F/c1.history. When the
file F/publishing-ends is there, it sends nothing more, waits for receipts, and goes on receiving until
F/all-ends is. With `--read` it reads every topic from its begin to its end instead, and notes what is there.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pulsar

from chaos.history import Event, Id, Recorder, Value

NAMESPACE: Final = "persistent://public/default/"
PUBLISHING_ENDS: Final = "publishing-ends"
ALL_ENDS: Final = "all-ends"
RECEIPTS_S: Final = 240.0
_RETRY_S: Final = 0.2
_ATTACHED: Final = re.compile(r"^(\S+ \S+) .*\[(\S+), (\S+)\] Created producer on broker")


@dataclass(frozen=True)
class Topic:
    """One topic, and how it is used."""

    name: str
    producer: dict[str, Any]
    subscriptions: dict[str, Any]


TOPICS: Final = (
    Topic("plain-1", {"batching_enabled": False}, {"failover": pulsar.ConsumerType.Failover}),
    Topic("plain-2", {"batching_enabled": False}, {"shared": pulsar.ConsumerType.Shared}),
    Topic(
        "batch-1",
        {"batching_enabled": True, "batching_max_publish_delay_ms": 20},
        {"failover": pulsar.ConsumerType.Failover, "shared": pulsar.ConsumerType.Shared},
    ),
    Topic(
        "keyed-1",
        {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
        {"keyed": pulsar.ConsumerType.KeyShared},
    ),
    Topic(
        "dedup-1",
        {"batching_enabled": False, "initial_sequence_id": 0},
        {"failover": pulsar.ConsumerType.Failover},
    ),
    Topic(
        "dedup-2",
        {"batching_enabled": True, "initial_sequence_id": 0},
        {"shared": pulsar.ConsumerType.Shared},
    ),
)
"""Names begin with a word that the rules know (`chaos/rules.py`).

The first sequence number is given, since the client has a fault: whenever it attaches before its first
receipt, it takes the broker's last stored number for its own. When that is -1, it gives the numbers of what
it sends again to later messages too, which deduplication drops (ProducerImpl::handleCreateProducer, seen in a
run)."""


def place_of(message_id: Any) -> Id:
    """The place that a message id of the client names."""
    return Id(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index(), message_id.partition())


class Clients:
    """All producers and consumers of a member."""

    def __init__(self, name: str, service_url: str, folder: Path, rate: float) -> None:
        self._name = name
        self._folder = folder
        self._rate = rate
        self._history = Recorder(folder / f"{name}.history")
        self._log = folder / f"{name}.client.log"
        self._client = pulsar.Client(
            service_url,
            operation_timeout_seconds=30,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(self._log)),
        )
        self._publishing_ends, self._all_ends = threading.Event(), threading.Event()

    def run(self) -> None:
        """Returns when the rig has made both files."""
        threads = [threading.Thread(target=self._publish, args=(topic,)) for topic in TOPICS]
        threads += [
            threading.Thread(target=self._consume, args=(topic, name, kind))
            for topic in TOPICS
            for name, kind in topic.subscriptions.items()
        ]
        for thread in threads:
            thread.start()
        for name, event in ((PUBLISHING_ENDS, self._publishing_ends), (ALL_ENDS, self._all_ends)):
            while not (self._folder / name).exists():
                time.sleep(0.05)  # the rig makes the file, whenever its schedule is over
            event.set()
        for thread in threads:
            thread.join()
        self._client.close()
        self._note_attachments()
        self._history.close()

    # -- producers ---------------------------------------------------------------------------------

    def _publish(self, topic: Topic) -> None:
        producer = self._until(
            topic.name,
            self._name,
            lambda: self._client.create_producer(
                NAMESPACE + topic.name,
                producer_name=self._name,
                send_timeout_millis=0,
                block_if_queue_full=True,
                max_pending_messages=500,
                **topic.producer,
            ),
        )
        number, begun_s, open_ones = 0, time.monotonic(), set[int]()
        while producer is not None and not self._publishing_ends.is_set():
            value = Value(self._name, number)
            number += 1
            open_ones.add(value.number)
            self._history.note("sent", topic.name, self._name, value)
            producer.send_async(
                value.payload, self._told(topic.name, value, open_ones), partition_key=f"k{value.key}"
            )
            # The pace of the whole run, so that what a pause left out is sent after it.
            self._publishing_ends.wait(max(0.0, begun_s + number / self._rate - time.monotonic()))
        end_s = time.monotonic() + RECEIPTS_S
        while open_ones and time.monotonic() < end_s:
            time.sleep(0.05)  # receipts come in a thread of the client; the deadline bounds the wait
        self._history.note("settled", topic.name, self._name, note=str(len(open_ones)))
        # Under another name first: the rig reads it as soon as it is there.
        unfinished = self._folder / f"{self._name}.{topic.name}.unsettled"
        unfinished.write_text(str(len(open_ones)))
        unfinished.rename(unfinished.with_suffix(".settled"))

    def _told(self, topic: str, value: Value, open_ones: set[int]) -> Callable[[Any, Any], None]:
        def told(result: pulsar.Result, message_id: Any) -> None:
            if result == pulsar.Result.Ok:
                self._history.note("acked", topic, self._name, value, place_of(message_id))
            else:
                self._history.note("refused", topic, self._name, value, note=str(result))
            open_ones.discard(value.number)

        return told

    # -- consumers ---------------------------------------------------------------------------------

    def _consume(self, topic: Topic, name: str, kind: Any) -> None:
        actor = f"{name}/{self._name}"
        consumer = self._until(
            topic.name,
            actor,
            lambda: self._client.subscribe(
                NAMESPACE + topic.name,
                name,
                kind,
                consumer_name=self._name,
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=100,
            ),
        )
        if consumer is None:
            return
        self._history.note("subscribed", topic.name, name)
        while not self._all_ends.is_set():
            try:
                message = consumer.receive(500)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                self._history.note("error", topic.name, actor, note=f"receiving: {error}")
                time.sleep(_RETRY_S)  # the client attaches again by itself
                continue
            self._received(topic.name, actor, message)
            try:
                consumer.acknowledge(message)
            except pulsar.PulsarException as error:
                # It comes again.
                self._history.note("error", topic.name, actor, note=f"acknowledging: {error}")

    def _received(self, topic: str, actor: str, message: Any) -> None:
        try:
            value = Value.of(bytes(message.data()))
        except ValueError as error:
            self._history.note("strange", topic, actor, note=str(error))
            return
        self._history.note("received", topic, actor, value, place_of(message.message_id()))

    def _until(self, topic: str, actor: str, make: Callable[[], Any]) -> Any:
        """What `make` makes, tried again until it works; None when the run ends before that."""
        while not self._publishing_ends.is_set():
            try:
                return make()
            except pulsar.PulsarException as error:
                self._history.note("error", topic, actor, note=f"attaching: {error}")
                self._publishing_ends.wait(_RETRY_S)
        return None

    # -- the end -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Notes what every topic holds."""
        for topic in TOPICS:
            reader = self._client.create_reader(NAMESPACE + topic.name, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(60_000)
                value = Value.of(bytes(message.data()))
                self._history.note("stored", topic.name, self._name, value, place_of(message.message_id()))
            reader.close()
            self._history.note("read", topic.name, self._name)
        self._client.close()
        self._history.close()

    def _note_attachments(self) -> None:
        """When each producer was attached to a broker, from the client's log, whose times are the wall
        clock's."""
        ahead_s = time.time() - time.monotonic()
        with self._log.open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                found = _ATTACHED.search(text)
                if found:
                    at = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S.%f").astimezone()
                    topic = found[2].removeprefix(NAMESPACE)
                    self._history.add(Event(at.timestamp() - ahead_s, "made", topic, found[3]))


def main() -> None:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m chaos.workload", description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True, help="of the member, and of its producers and consumers")
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=40.0, help="messages a second and topic (40)")
    parser.add_argument("--read", action="store_true", help="read what every topic holds")
    options = parser.parse_args()
    clients = Clients(options.name, options.service_url, options.folder, options.rate)
    if options.read:
        clients.read()
    else:
        clients.run()


if __name__ == "__main__":
    main()
