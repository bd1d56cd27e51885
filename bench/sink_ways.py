"""What does a broker pay for a large batch of a sink: staged and copied, or written in a transaction?

    python -m bench.sink_ways [--megabytes N] [--entry-kib N]

Staged, as the Spark sink does it: entries go to a staging topic, are read back, and go to the target. In a
transaction: entries go to the target once, and one END_TXN shows them. Both by the product's own client, on
brokers of their own; what counts is the CPU time of the broker. Decision 0033 has the result.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import proc
from bench.broker import Cpus, magnetar_command, started
from magnetar.base.ids import EARLIEST, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.reader import last_position, read_range
from magnetar.client.transactions import Coordinator
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry

STAGING, TARGET = TopicName.parse("staging"), TopicName.parse("target")


def entry_of(number: int, payload: bytes, txn: tuple[int, int] | None = None) -> bytes:
    """A message that is an entry."""
    metadata = pb.MessageMetadata(producer_name="bench", sequence_id=number, publish_time=1)
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    return build_entry(metadata, payload)


def staged(client: Client, payload: bytes, count: int) -> None:
    """To the staging topic, back, and to the target."""
    with Producer(client, STAGING) as producer:
        for number in range(count):
            producer.send(number, entry_of(number, payload))
        producer.flush()
    end = last_position(client, STAGING)
    assert end is not None
    behind = Position(end.ledger_id, end.entry_id + 1)
    with Producer(client, TARGET) as producer:
        number = 0
        for columns in read_range(client, STAGING, EARLIEST, behind):
            for entry in columns.entries:
                producer.send(number, entry)
                number += 1
        producer.flush()


def in_transaction(client: Client, payload: bytes, count: int) -> None:
    """To the target at once."""
    with Coordinator(client) as coordinator, Producer(client, TARGET) as producer:
        txn = coordinator.begin(300.0)
        coordinator.add_topic(txn, TARGET)
        for number in range(count):
            producer.send(number, entry_of(number, payload, txn), txn=txn)
        producer.flush()
        coordinator.end(txn, commit=True)


def measure(way: Callable[[Client, bytes, int], None], payload: bytes, count: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of the broker."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-sink-") as folder,
        started(magnetar_command(), Path(folder), Cpus(None, None)) as broker,
        Client(broker.service_url, admin_url=broker.http_url) as client,
    ):
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        client.admin.call("POST", "/admin/v2/namespaces/public/default/retention", kept)
        way(client, payload, 10)
        assert broker.pid is not None
        cpu_s, began_s = proc.usage(broker.pid).cpu_s, time.perf_counter()
        way(client, payload, count)
        return time.perf_counter() - began_s, proc.usage(broker.pid).cpu_s - cpu_s


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.sink_ways", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="of a batch (200)")
    parser.add_argument("--entry-kib", type=int, default=64, help="of an entry (64)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    os.environ["MAGNETAR_TRANSACTIONS"] = "true"
    payload = os.urandom(options.entry_kib << 10)
    count = (options.megabytes << 20) // len(payload)
    for number in range(options.runs):
        for way in (staged, in_transaction):
            seconds, cpu_s = measure(way, payload, count)
            print(f"run {number + 1}  {way.__name__:<15} {seconds:6.2f} s  {cpu_s:6.2f} CPU s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
