"""How long a start takes when subscriptions were busy and the broker was killed.

    python -m bench.busy_start --seconds S --json FILE [--topics 100] [--subscriptions 10] [--rate 2000]

Brokers of its own, the official Python client. Each topic has the same number of Shared subscriptions. For S
seconds messages are published at a rate in all, spread over the topics, and every subscription acknowledges
its messages one by one, but for each tenth: holes that cursors must keep. Then the broker is killed, started
again, and every subscription asks for what it has not acknowledged: how long, from exec, until the first one
and until the last one gets a message.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import pulsar

from bench.broker import Broker, Cpus, magnetar_command, started
from bench.proc import usage

CPUS: Final = Cpus(None, None)
KEPT_OF: Final = 10
"""Every message whose number is a multiple of it is not acknowledged."""
PAYLOAD: Final = bytes(100)
CAME_DEADLINE_S: Final = 300.0


def client_of(broker: Broker) -> Any:
    """The official client, which logs errors only."""
    return pulsar.Client(
        broker.service_url,
        io_threads=1,
        message_listener_threads=1,
        operation_timeout_seconds=120,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def topic_of(number: int) -> str:
    """Name of a topic."""
    return f"persistent://public/default/busy-{number}"


def keep_busy(client: Any, seconds: float, topics: int, subscriptions: int, rate: int) -> dict[str, float]:
    """Publishes and acknowledges; what was done."""
    counts = {"acknowledged": 0, "received": 0}
    lock = threading.Lock()

    def take(consumer: Any, message: Any) -> None:
        number = int(message.properties()["n"])
        with lock:
            counts["received"] += 1
        if number % KEPT_OF:
            consumer.acknowledge(message)
            with lock:
                counts["acknowledged"] += 1

    for topic in range(topics):
        for number in range(subscriptions):
            client.subscribe(topic_of(topic), f"s{number}", pulsar.ConsumerType.Shared, message_listener=take)
    producers = [client.create_producer(topic_of(topic), batching_enabled=False) for topic in range(topics)]
    published = 0
    start_s = time.perf_counter()
    while (now_s := time.perf_counter() - start_s) < seconds:
        while published < now_s * rate:
            producers[published % topics].send_async(
                PAYLOAD, lambda *_: None, properties={"n": str(published // topics)}
            )
            published += 1
        time.sleep(0.001)
    for producer in producers:
        producer.flush()
    return {"published": float(published), **{name: float(count) for name, count in counts.items()}}


def come_back(broker: Broker, topics: int, subscriptions: int) -> dict[str, float]:
    """When subscriptions get what they had not acknowledged, in seconds from exec."""
    assert broker.exec_s is not None
    assert broker.pid is not None
    came: dict[tuple[int, int], float] = {}
    all_came = threading.Event()
    wanted = topics * subscriptions

    def listener(key: tuple[int, int]) -> Any:
        def take(_consumer: Any, _message: Any) -> None:
            came.setdefault(key, time.perf_counter())
            if len(came) == wanted:
                all_came.set()

        return take

    client = client_of(broker)

    def subscribe(numbers: range) -> None:
        for topic in numbers:
            for number in range(subscriptions):
                client.subscribe(
                    topic_of(topic),
                    f"s{number}",
                    pulsar.ConsumerType.Shared,
                    message_listener=listener((topic, number)),
                )

    # Calls of this client wait for their answer: several at a time, as applications of their own would.
    threads = [threading.Thread(target=subscribe, args=(range(first, topics, 16),)) for first in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_came.wait(CAME_DEADLINE_S)
    found = usage(broker.pid)
    client.close()
    waits = sorted(at - broker.exec_s for at in came.values())
    return {
        "ready_s": broker.ready_s or 0.0,
        "first_message_s": waits[0],
        "median_message_s": statistics.median(waits),
        "last_message_s": waits[-1],
        "subscriptions_served": float(len(waits)),
        "start_cpu_s": found.cpu_s,
    }


def main() -> None:
    """Measures and writes what it found."""
    parser = argparse.ArgumentParser(prog="python -m bench.busy_start")
    parser.add_argument("argument", nargs="?", choices=["few"], help="40 subscriptions of one topic")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--subscriptions", type=int, default=10, help="of each topic")
    parser.add_argument("--rate", type=int, default=2_000, help="messages a second, of all topics together")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    if options.argument is not None:
        options.topics, options.subscriptions = 1, 40
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with started(magnetar_command(), folder, CPUS, stop_signal=signal.SIGKILL) as broker:
            client = client_of(broker)
            found = keep_busy(client, options.seconds, options.topics, options.subscriptions, options.rate)
        # After the kill: closing would hand back what the consumers hold.
        client.shutdown()
        with started(magnetar_command(), folder, CPUS) as broker:
            found |= come_back(broker, options.topics, options.subscriptions)
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
