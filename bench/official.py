"""The official Python client as load generator, in a process of its own.

    python -m bench.official --service-url URL --topic T --payload-bytes N [--batching] --seconds S
    [--broker-pid P]

Publishes asynchronously for the time given, then receives and acknowledges everything; prints the metrics as
JSON. The client's own cost per message is what it measures first of all: read it beside the raw driver.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Final

import pulsar

from bench.meter import Meter
from bench.payload import message_of

RECEIVE_TIMEOUT_MS: Final = 20_000
PENDING_MAX: Final = 10_000


def measure(
    service_url: str,
    topic: str,
    meter: Meter,
    *,
    payload_bytes: int,
    batching: bool,
    warm_up_s: float,
    seconds: float,
) -> dict[str, float]:
    """Publish, then consume; metrics carry the prefixes `produce_` and `consume_`."""
    client = pulsar.Client(service_url, io_threads=1, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(
            topic, "official", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10_000
        )
        producer = client.create_producer(
            topic,
            batching_enabled=batching,
            batching_max_publish_delay_ms=1,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=128 << 10,
            max_pending_messages=PENDING_MAX,
            block_if_queue_full=True,
        )
        payload = message_of(payload_bytes)
        acknowledged = 0
        failed: list[str] = []

        def done(result: object, _: object) -> None:
            nonlocal acknowledged
            if result == pulsar.Result.Ok:
                acknowledged += 1
            else:
                failed.append(str(result))

        def publish_until(end_s: float) -> int:
            sent = 0
            while time.perf_counter() < end_s:
                for _ in range(100):
                    producer.send_async(payload, done)
                sent += 100
            return sent

        sent = publish_until(time.perf_counter() + warm_up_s)
        start, before = meter.now(), acknowledged
        sent += publish_until(start.wall_s + seconds)
        end, published = meter.now(), acknowledged - before
        producer.flush()
        if failed:
            raise RuntimeError(f"{len(failed)} messages failed, the first with {failed[0]}")
        out = {
            f"produce_{name}": value
            for name, value in meter.metrics(
                start, end, messages=published, payload_bytes=published * payload_bytes
            ).items()
        }
        start = meter.now()
        for _ in range(sent):
            consumer.acknowledge(consumer.receive(timeout_millis=RECEIVE_TIMEOUT_MS))
        end = meter.now()
        consumed = meter.metrics(start, end, messages=sent, payload_bytes=sent * payload_bytes)
        return out | {f"consume_{name}": value for name, value in consumed.items()}
    finally:
        client.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.official", description=__doc__)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--payload-bytes", type=int, required=True)
    parser.add_argument("--batching", action="store_true")
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--broker-pid", type=int)
    options = parser.parse_args()
    metrics = measure(
        options.service_url,
        options.topic,
        Meter(options.broker_pid),
        payload_bytes=options.payload_bytes,
        batching=options.batching,
        warm_up_s=options.warm_up,
        seconds=options.seconds,
    )
    json.dump(metrics, sys.stdout)


if __name__ == "__main__":
    main()
