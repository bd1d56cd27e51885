"""What the broker's memory comes to under clients that are too slow, and under many connections.

    python -m bench.crowd slow-consumer --seconds S --service-url URL --broker-pid PID --json FILE
    python -m bench.crowd connections   …

slow-consumer: topics published to and read as fast as it goes; a second reader of each takes a tenth of it,
and a hundred consumers on connections of their own ask for a backlog and never read.
connections: the same full load beside 5,000 consumers on a connection each, 1,000 of which never read what
they have asked for.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.connection import Connection
from bench.meter import MEGA, Meter, no_garbage_collection
from bench.publisher import Publisher
from bench.pulsar_driver import PulsarDriver
from bench.soak import OPENERS, Load
from bench.throughput import publish_all

TOPICS: Final = 4
BACKLOG_ENTRIES: Final = 2_000
BACKLOG_PAYLOAD_BYTES: Final = 10_000
"""A backlog of 20 MB: up to 4 MiB of it can wait for each consumer that never reads."""
SAMPLE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that are connected beside the full load."""

    slow: bool
    """A reader of each topic that takes a tenth of it."""
    idle: int
    """Consumers of quiet topics, a connection each."""
    deaf: int
    """Consumers that ask for a backlog and never read."""


CROWDS: Final = {
    "slow-consumer": Crowd(slow=True, idle=0, deaf=100),
    "connections": Crowd(slow=False, idle=4_000, deaf=1_000),
}


def measure(url: str, pid: int | None, crowd: Crowd, seconds: float) -> dict[str, float]:
    """Rates and memory with that crowd; `url` is that of a broker whose process is `pid`."""
    meter = Meter(pid)
    found = {"rss_before_mb": meter.rss_bytes() / MEGA}
    deaf = deaf_consumers(url, crowd.deaf)
    load = Load(url, TOPICS, slow=crowd.slow, connections=crowd.idle)
    try:
        found["rss_connected_mb"] = meter.rss_bytes() / MEGA
        with no_garbage_collection():
            before = meter.now()
            peak = 0.0
            for number in range(1, max(1, round(seconds / SAMPLE_S)) + 1):
                load.run_until(before.wall_s + number * SAMPLE_S)
                peak = max(peak, meter.rss_bytes() / MEGA)
            after = meter.now()
    finally:
        load.close()
        for one in deaf:
            one.close()
    wall_s = after.wall_s - before.wall_s
    return found | {
        "rss_mb_max": peak,
        "in_messages_per_s": load.acknowledged / wall_s,
        "out_messages_per_s": load.received / wall_s,
        "slow_messages_per_s": load.received_slowly / wall_s,
        "broker_cores": (after.broker_cpu_s - before.broker_cpu_s) / wall_s,
    }


def deaf_consumers(url: str, count: int) -> list[socket.socket]:
    """Connects `count` consumers of one topic with a backlog; their sockets are not read."""
    topic = f"persistent://public/default/backlog-{time.time_ns()}"
    lane = PulsarDriver(url).lane(topic, payload_bytes=BACKLOG_PAYLOAD_BYTES, messages_per_entry=1)
    publish_all([Publisher(lane, entries_max=BACKLOG_ENTRIES)], Meter(None))

    def connect(number: int) -> socket.socket:
        connection = Connection(url)
        connection.subscribe(topic, f"deaf-{number}", durable=False, earliest=True)
        connection.flow(BACKLOG_ENTRIES)
        return connection.socket

    with ThreadPoolExecutor(OPENERS) as pool:
        return list(pool.map(connect, range(count)))


def main() -> None:
    """Write the figures of one crowd to `--json`."""
    parser = argparse.ArgumentParser(prog="python -m bench.crowd", description="Memory under many clients.")
    parser.add_argument("crowd", choices=CROWDS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--http-url")
    parser.add_argument("--broker-pid", type=int)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = measure(options.service_url, options.broker_pid, CROWDS[options.crowd], options.seconds)
    options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
