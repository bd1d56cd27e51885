"""Does memory stay where it is? Full load for minutes or hours, the broker's resident memory every while.

    python -m bench soak --minutes 30                full load: 4 topics published and read as fast as it goes
    python -m bench soak --minutes 2 --slow          a second reader of each topic that takes a tenth of it
    python -m bench soak --minutes 10 --connections 5000   beside idle consumers on connections of their own

Flat means: the mean of the last third of the samples is above that of the middle third by less than 3 % or
8 MB, whichever is more. The first third is for caches to fill. Ends with 1 when memory was not flat. The
slope that is printed is that of the straight line nearest to the last two thirds.

What was read leaves the disk within a minute or two, what slow readers have not taken stays: a minute of full
load may be 20 GB. With less than 5 GB left it ends early.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from bench import frames as f
from bench.broker import Broker, Cpus, magnetar_command, started
from bench.connection import Connection
from bench.consumer import Consumer
from bench.meter import MEGA, Meter, no_garbage_collection
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver

PAYLOAD_BYTES: Final = 1_000
QUEUE_MESSAGES: Final = 1_000
SLOWNESS: Final = 10
LEAD_MESSAGES: Final = 100_000
"""A publisher waits for its fast reader then: more than the cache holds, so that some is read from disk."""
IDLE_TOPICS: Final = 100
OPENERS: Final = 32
"""Connections that are opened at the same time: each waits for the broker a few times."""
WAIT_S: Final = 0.01
SHARE_FLAT: Final = 0.03
MB_FLAT: Final = 8.0
ROLLOVER: Final = ("MAGNETAR_LEDGER_ROLLOVER_MIN_SECONDS", "10")
"""Disk is given back ledger by ledger: ten minutes of full load, the default, would not fit on many."""
DISK_FREE_MIN: Final = 5e9
"""Bytes; the run ends when less is left for others."""
STALL_LINES: Final = ("magnetar_loop_stall_seconds", "magnetar_gc_")


def growth(samples: list[float]) -> float:
    """By how much the mean of the last third is above that of the middle third."""
    third = len(samples) // 3
    if not third:
        return 0.0
    middle, last = samples[third : 2 * third], samples[-third:]
    return sum(last) / third - sum(middle) / third


def slope_mb_per_hour(samples: list[float], interval_s: float) -> float:
    """Slope, in MB per hour, of the line through the last two thirds of the samples (least squares)."""
    tail = samples[len(samples) // 3 :]
    middle_x, middle_y = (len(tail) - 1) / 2, sum(tail) / max(1, len(tail))
    spread = sum((x - middle_x) ** 2 for x in range(len(tail)))
    if not spread:
        return 0.0
    return sum((x - middle_x) * (y - middle_y) for x, y in enumerate(tail)) / spread * 3_600 / interval_s


def is_flat(samples: list[float]) -> bool:
    """Whether memory, in MB, stayed where it was."""
    third = len(samples) // 3
    allowed = max(MB_FLAT, SHARE_FLAT * samples[third]) if third else MB_FLAT
    return growth(samples) < allowed


class Load:
    """Publishers, each with a reader and perhaps a slow one, and idle connections, in one thread."""

    def __init__(self, service_url: str, topics: int, *, slow: bool, connections: int) -> None:
        """Open everything. Raises BrokerAnswerError."""
        driver = PulsarDriver(service_url)
        self._epoll = select.epoll()
        self._receive: dict[int, Callable[[], None]] = {}
        self._publishers: list[Publisher] = []
        self._slow: list[tuple[Consumer, Publisher]] = []
        self.consumers: list[Consumer] = []
        with ThreadPoolExecutor(OPENERS) as pool:
            self._idle = list(pool.map(partial(self._connect, service_url), range(connections)))
        for number in range(topics):
            topic = f"persistent://public/default/soak-{number}"
            reader = self._consumer(service_url, topic, "fast")
            slow_reader = self._consumer(service_url, topic, "slow") if slow else None
            publisher = Publisher(driver.lane(topic, payload_bytes=PAYLOAD_BYTES, messages_per_entry=1))
            reader.start(publisher.template)
            self._watch(reader.socket, reader.receive)
            self._watch(publisher.socket, publisher.receive)
            self.consumers.append(reader)
            self._publishers.append(publisher)
            if slow_reader is not None:
                slow_reader.start(publisher.template)
                self._slow.append((slow_reader, publisher))

    @staticmethod
    def _consumer(service_url: str, topic: str, subscription: str) -> Consumer:
        return Consumer(
            service_url,
            topic,
            subscription=subscription,
            queue_messages=QUEUE_MESSAGES,
            durable=True,
            earliest=True,
        )

    def _connect(self, service_url: str, number: int) -> socket.socket:
        connection = Connection(service_url)
        topic = f"persistent://public/default/idle-{number % IDLE_TOPICS}"
        connection.subscribe(topic, f"sub-{number}", durable=False, earliest=False)
        connection.flow(QUEUE_MESSAGES)
        connection.hand_over()
        idle = connection.socket
        # All that comes is PING: whatever it is, PONG answers it.
        self._watch(idle, lambda: idle.send(f.command_frame(f.PONG, b"")) if idle.recv(65536) else None)
        return idle

    def _watch(self, source: socket.socket, receive: Callable[[], object]) -> None:
        self._receive[source.fileno()] = lambda: (receive(), None)[1]
        self._epoll.register(source, select.EPOLLIN)

    @property
    def acknowledged(self) -> int:
        """Messages published and acknowledged."""
        return sum(publisher.entries_acknowledged for publisher in self._publishers)

    @property
    def received(self) -> int:
        """Messages that the fast readers have got."""
        return sum(consumer.entries_received for consumer in self.consumers)

    @property
    def received_slowly(self) -> int:
        """Messages that the slow readers have got."""
        return sum(consumer.entries_received for consumer, _ in self._slow)

    def run_until(self, end_s: float) -> None:
        """Move everything forward."""
        while time.perf_counter() < end_s:
            for publisher, consumer in zip(self._publishers, self.consumers, strict=True):
                if publisher.entries_sent - consumer.entries_received < LEAD_MESSAGES:
                    publisher.pump()
            for fd, _ in self._epoll.poll(WAIT_S):
                self._receive[fd]()
            for consumer, publisher in self._slow:
                if consumer.entries_received * SLOWNESS < publisher.entries_acknowledged:
                    consumer.receive()

    def close(self) -> None:
        """Close all sockets."""
        self._epoll.close()
        slow = [consumer.socket for consumer, _ in self._slow]
        fast = [consumer.socket for consumer in self.consumers]
        for one in (*fast, *slow, *(publisher.socket for publisher in self._publishers), *self._idle):
            one.close()


def soak(broker: Broker, folder: Path, options: argparse.Namespace) -> bool:
    """Run the load and print a line for each sample; whether memory was flat. `folder` holds the data."""
    meter = Meter(broker.pid)
    idle_mb = meter.rss_bytes() / MEGA
    load = Load(broker.service_url, options.topics, slow=options.slow, connections=options.connections)
    samples: list[float] = []
    interval_s = options.interval
    print(f"RSS {idle_mb:.0f} MB before, {meter.rss_bytes() / MEGA:.0f} MB with everything open")
    print("    s  RSS MB   in msg/s  out msg/s  slow msg/s  CPU share  load  disk free GB")
    try:
        with no_garbage_collection():
            start = before = meter.now()
            counts = (0, 0, 0)
            for number in range(1, max(1, round(options.minutes * 60 / interval_s)) + 1):
                load.run_until(start.wall_s + number * interval_s)
                now = meter.now()
                samples.append(meter.rss_bytes() / MEGA)
                seen = (load.acknowledged, load.received, load.received_slowly)
                seconds = now.wall_s - before.wall_s
                rates = [(b - a) / seconds for a, b in zip(counts, seen, strict=True)]
                share = (now.broker_cpu_s - before.broker_cpu_s) / seconds
                free = shutil.disk_usage(folder).free
                print(
                    f"{now.wall_s - start.wall_s:5.0f} {samples[-1]:7.1f} {rates[0]:10,.0f} {rates[1]:10,.0f}"
                    f" {rates[2]:11,.0f} {share:10.2f} {os.getloadavg()[0]:5.1f} {free / 1e9:13.1f}",
                    flush=True,
                )
                counts, before = seen, now
                if free < DISK_FREE_MIN:
                    print("ended early: the disk is nearly full")
                    break
    finally:
        load.close()
    with urllib.request.urlopen(f"{broker.http_url}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(STALL_LINES):
                print(line)
    flat = is_flat(samples)
    print(
        f"{'flat' if flat else 'NOT flat'}: {growth(samples):+.1f} MB from the middle third to the last,"
        f" slope {slope_mb_per_hour(samples, interval_s):+.1f} MB an hour, peak {max(samples):.0f} MB"
    )
    return flat


def main() -> int:
    """0 when memory was flat, 1 when it was not."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description="Does memory stay flat?")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (30)")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between samples (60)")
    parser.add_argument("--topics", type=int, default=4, help="topics published to and read (4)")
    parser.add_argument("--slow", action="store_true", help="a second reader of each, ten times slower")
    parser.add_argument("--connections", type=int, default=0, help="idle consumers, a connection each")
    parser.add_argument("--data-dir", type=Path, help="folder for the broker's data")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = options.data_dir or Path(tempfile.gettempdir())
    os.environ.setdefault(*ROLLOVER)
    cores = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=folder) as scratch,
        started(magnetar_command(), Path(scratch), Cpus(cores[0], cores[-1])) as broker,
    ):
        os.sched_setaffinity(0, {cores[-1]})
        return 0 if soak(broker, Path(scratch), options) else 1


if __name__ == "__main__":
    sys.exit(main())
