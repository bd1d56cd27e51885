"""A load of the official Python client: `python -m bench.clients.python_load`.

What it prints and counts is what `go/main.go` does.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from typing import Final

import numpy as np
import pulsar

from bench.histogram import Latencies

LEAD_NS: Final = 50_000_000


class Load:
    """One producer, and what is known of its messages."""

    def __init__(self, producer: pulsar.Producer, pending: int, begin_ns: int, end_ns: int) -> None:
        self._producer: Final = producer
        self._window: Final = threading.Semaphore(pending)
        self._begin_ns: Final = begin_ns
        self._end_ns: Final = end_ns
        self.times_ns: Final[list[int]] = []
        self.late_ns: Final[list[int]] = []
        self.acknowledged = 0
        """Inside the measured time."""
        self.failed = 0

    def _measured(self, at_ns: int) -> bool:
        return self._begin_ns <= at_ns < self._end_ns

    def _send(self, content: bytes, due_ns: int) -> None:
        self._window.acquire()

        def done(result: object, _: object) -> None:
            at_ns = time.monotonic_ns()
            self._window.release()
            if result != pulsar.Result.Ok:
                self.failed += 1
                return
            if self._measured(due_ns):
                self.times_ns.append(at_ns - due_ns)
            if self._measured(at_ns):
                self.acknowledged += 1

        self._producer.send_async(content, done)

    def flood(self, content: bytes) -> None:
        """As fast as acknowledged, until the end."""
        while (at_ns := time.monotonic_ns()) < self._end_ns:
            self._send(content, at_ns)

    def pace(self, content: bytes, start_ns: int, rate_per_s: int) -> None:
        """Message i is due at start + i / rate, until the end."""
        number = 0
        while (due_ns := start_ns + number * 1_000_000_000 // rate_per_s) < self._end_ns:
            if (ahead_ns := due_ns - time.monotonic_ns()) > 0:
                time.sleep(ahead_ns / 1e9)  # the open loop: this message is not due yet
            if self._measured(due_ns):
                self.late_ns.append(max(0, time.monotonic_ns() - due_ns))
            self._send(content, due_ns)
            number += 1


def milliseconds(times_ns: list[int], prefix: str = "") -> dict[str, float]:
    """The percentiles of these times, in milliseconds; empty when there are none."""
    latencies = Latencies()
    latencies.record(np.array(times_ns, dtype=np.int64))
    return latencies.milliseconds(prefix) if times_ns else {}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients.python_load", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--mode", choices=("paced", "flood"), default="paced")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--payload-bytes", type=int, default=1024)
    parser.add_argument("--batching", action="store_true")
    parser.add_argument("--pending", type=int, default=1000)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    client = pulsar.Client(given.url, io_threads=1, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        f"{given.topic}-0",
        batching_enabled=given.batching,
        batching_max_publish_delay_ms=1,
        batching_max_messages=1000,
        max_pending_messages=given.pending,
        block_if_queue_full=True,
        send_timeout_millis=0,
    )
    start_ns = time.monotonic_ns() + LEAD_NS
    begin_ns = start_ns + int(given.warm_up * 1e9)
    end_ns = begin_ns + int(given.seconds * 1e9)
    load = Load(producer, given.pending, begin_ns, end_ns)
    content = os.urandom(given.payload_bytes)
    sender = threading.Thread(
        target=load.flood if given.mode == "flood" else load.pace,
        args=(content,) if given.mode == "flood" else (content, start_ns, given.rate),
    )
    sender.start()
    # The measured time goes by the clock: the caller reads its counters at both words.
    time.sleep((begin_ns - time.monotonic_ns()) / 1e9)
    print("begin", flush=True)
    time.sleep(max(0, end_ns - time.monotonic_ns()) / 1e9)
    acknowledged = load.acknowledged
    print("end", flush=True)
    sender.join()
    producer.flush()
    client.close()
    print(
        json.dumps(
            {
                "messages": acknowledged,
                "failed": load.failed,
                **milliseconds(load.times_ns),
                **milliseconds(load.late_ns, "late_"),
            }
        )
    )


if __name__ == "__main__":
    main()
