"""The Java program `Transforming.java`, which takes from one topic and writes to two in transactions, and its
results."""

from __future__ import annotations

import subprocess
import threading

import pulsar

from support.official import QUIET


class Lines:
    """What the program said so far."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.all: list[str] = []
        self._program = program
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self.all.append(line.strip())

    def committed(self) -> list[str]:
        return [line.split()[1] for line in self.all if line.startswith("committed")]


def numbers_in(service_url: str, topic: str) -> list[int]:
    """Everything that a reader gets of a topic."""
    client = pulsar.Client(service_url, operation_timeout_seconds=60, logger=QUIET)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(60_000).data()))
    client.close()
    return found


def prepare(service_url: str, source: str, written: tuple[str, ...], count: int) -> None:
    """Publishes `count` numbers to the source, and makes the topics keep what is written to them."""
    client = pulsar.Client(service_url, operation_timeout_seconds=60, logger=QUIET)
    client.subscribe(source, "work", pulsar.ConsumerType.Shared).close()
    for name in written:
        # Without a subscription a topic keeps nothing of a ledger that is full or whose owner is gone.
        client.subscribe(name, "keep").close()
    producer = client.create_producer(source)
    for number in range(count):
        producer.send(b"%d" % number)
    client.close()
