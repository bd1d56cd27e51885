"""kill -9 at random points: nothing acknowledged is lost, doubled or out of order; cursors never run ahead.

Each round starts the broker on the same data, lets the official client publish from several producers
(batched, unbatched, compressed) while a consumer acknowledges every other message, and kills the
broker with SIGKILL. After the next start the log is read from where the round before ended.

MAGNETAR_KILL_ROUNDS chooses the number of rounds; MAGNETAR_KILL_SEED replays their random points.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest

from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.one_process("kills")]

ROUNDS = int(os.environ.get("MAGNETAR_KILL_ROUNDS", "12"))
TOPIC = "persistent://public/default/kill"
WINDOW = 200
"""Messages that a producer has under way."""
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)

PRODUCERS: dict[str, dict[str, object]] = {
    "single": {"batching_enabled": False},
    "batched": {"batching_enabled": True, "batching_max_publish_delay_ms": 1},
    "packed": {"batching_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
}


@dataclass
class History:
    """What clients were told and what they saw."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Message → acknowledgements that its producer got."""
    stored: dict[bytes, int] = field(default_factory=dict)
    """Message → times it stands in the log."""
    delivered: set[bytes] = field(default_factory=set)
    """Messages that the consumer of the subscription got at least once."""
    verified: pulsar.MessageId = field(default_factory=lambda: pulsar.MessageId.earliest)
    """The log was read up to here."""


def connect(process: StandaloneProcess) -> pulsar.Client:
    return pulsar.Client(process.broker_url, operation_timeout_seconds=5, logger=QUIET)


def publish_until_killed(process: StandaloneProcess, number: int, delay_s: float, history: History) -> int:
    """Publishes and consumes until the kill after `delay_s` seconds; returns the acknowledgements."""
    client = connect(process)
    consumer = client.subscribe(
        TOPIC, "worker", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    producers = {
        name: client.create_producer(
            TOPIC,
            send_timeout_millis=5_000,
            max_pending_messages=2 * WINDOW,
            **options,
        )
        for name, options in PRODUCERS.items()
    }
    killed = threading.Event()
    acknowledged = 0
    lock = threading.Lock()
    # The client's own blocking on a full queue does not end when it is shut down.
    windows = {name: threading.Semaphore(WINDOW) for name in PRODUCERS}

    def on_sent(name: str, data: bytes, result: pulsar.Result) -> None:
        nonlocal acknowledged
        windows[name].release()
        if result == pulsar.Result.Ok:
            with lock:
                acknowledged += 1
                history.acknowledged[data] = history.acknowledged.get(data, 0) + 1

    def publish(name: str) -> None:
        i = 0
        while not killed.is_set():
            if not windows[name].acquire(timeout=0.1):
                continue
            data = f"{name}:{number}:{i}".encode()
            try:
                producers[name].send_async(data, lambda result, _, data=data: on_sent(name, data, result))
            except pulsar.PulsarException:
                return
            i += 1

    def consume() -> None:
        i = 0
        while not killed.is_set():
            try:
                message = consumer.receive(100)
            except pulsar.PulsarException:
                continue
            history.delivered.add(message.data())
            if i % 2:
                try:
                    consumer.acknowledge(message)
                except pulsar.PulsarException:
                    # The client may be shut down between the message and here, and only then.
                    assert killed.is_set()
                    return
            i += 1

    threads = [threading.Thread(target=publish, args=(name,), daemon=True) for name in PRODUCERS]
    threads.append(threading.Thread(target=consume, daemon=True))
    for thread in threads:
        thread.start()
    # The kill's moment is random on purpose; at least one acknowledgement makes the round worth it.
    wait_until(lambda: acknowledged > 0, 20, "publishing")
    killed.wait(delay_s)
    process.kill()
    killed.set()
    client.shutdown()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return acknowledged


def read_log(process: StandaloneProcess, history: History) -> None:
    """Reads what the last round left and checks the order per producer."""
    client = connect(process)
    reader = client.create_reader(TOPIC, history.verified)
    last: dict[tuple[str, int], int] = {}
    while reader.has_message_available():
        message = reader.read_next(10_000)
        name, number, i = message.data().decode().split(":")
        assert last.get((name, int(number)), -1) < int(i), f"{message.data()!r} out of order"
        last[name, int(number)] = int(i)
        history.stored[message.data()] = history.stored.get(message.data(), 0) + 1
        history.verified = message.message_id()
    client.close()


def drain(process: StandaloneProcess, history: History) -> None:
    """Lets the subscription deliver all that it still holds."""
    client = connect(process)
    consumer = client.subscribe(TOPIC, "worker", pulsar.ConsumerType.Shared)
    missing = set(history.stored) - history.delivered
    while missing:
        try:
            message = consumer.receive(5_000)
        except pulsar.Timeout:
            break
        missing.discard(message.data())
        history.delivered.add(message.data())
        consumer.acknowledge(message)
    client.close()


@pytest.mark.parametrize(
    ("options", "rounds"), [((), ROUNDS), (("--bookies", "3"), max(2, ROUNDS // 6))], ids=["alone", "bookies"]
)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    tmp_path: Path, options: tuple[str, ...], rounds: int
) -> None:
    with StandaloneProcess(tmp_path, options=options) as process:
        process.stop()
        kill_and_read(process, rounds)


def kill_and_read(process: StandaloneProcess, rounds: int) -> None:
    seed = int(os.environ.get("MAGNETAR_KILL_SEED", random.SystemRandom().randrange(1 << 32)))
    chance = random.Random(seed)
    history = History()
    total = 0
    for number in range(rounds):
        process.start()
        read_log(process, history)
        total += publish_until_killed(process, number, chance.uniform(0.0, 0.4), history)
    process.start()
    read_log(process, history)
    wrong = {
        data: (count, history.stored.get(data, 0))
        for data, count in history.acknowledged.items()
        if history.stored.get(data, 0) != count
    }
    assert not wrong, f"seed {seed}: (acknowledged, stored) of {len(wrong)}: {dict(list(wrong.items())[:5])}"
    assert all(count == 1 for count in history.stored.values()), f"seed {seed}: stored twice"
    drain(process, history)
    skipped = set(history.stored) - history.delivered
    assert not skipped, (
        f"seed {seed}: {len(skipped)} stored messages were never delivered: {sorted(skipped)[:5]}"
    )
    assert process.stop() == 0
    print(f"{rounds} rounds, {total} acknowledged, {len(history.stored)} stored, seed {seed}")
