"""What 100,000 topics cost a broker that knows them, 1,000 of which are used.

    python -m bench.known_topics [loaded] --seconds S --json FILE [--topics 100000]

Starts a broker of its own, makes the topics over REST in namespaces of 10,000, publishes to 1,000 of them,
asks for lists and metrics, changes a policy, and starts the broker again. loaded: the statistics of every
topic are asked for before, so that the broker holds all of them in memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.broker import Broker, Cpus, magnetar_command, started
from bench.meter import MEGA, Meter
from bench.scenario import TopicsLoad
from bench.topics import run as run_topics

NAMESPACE_TOPICS: Final = 10_000
ACTIVE: Final = 1_000
CALLERS: Final = 8
"""Connections that make topics at the same time."""
ASKED: Final = 5
"""How often lists and metrics are asked for."""
KEEP: Final = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 60}


class Admin:
    """Calls of the admin API on one connection."""

    def __init__(self, http_url: str) -> None:
        parts = urlsplit(http_url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """The body of the answer; raises RuntimeError for a refusal."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content


def every(http_url: str, method: str, paths: list[str]) -> None:
    """Calls all paths over several connections."""

    def part(number: int) -> None:
        admin = Admin(http_url)
        for path in paths[number::CALLERS]:
            admin.call(method, path)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(part, range(CALLERS)))


def namespaces(topics: int) -> Iterator[tuple[str, list[str]]]:
    """Names of namespaces, and the REST paths of their topics."""
    for number in range(-(-topics // NAMESPACE_TOPICS)):
        count = min(NAMESPACE_TOPICS, topics - number * NAMESPACE_TOPICS)
        base = f"/admin/v2/persistent/known-{number}/n/topic"
        yield f"known-{number}/n", [f"{base}-{i}" for i in range(count)]


def make(broker: Broker, meter: Meter, topics: int) -> dict[str, float]:
    """Makes the topics; what the first namespace took."""
    admin = Admin(broker.http_url)
    found: dict[str, float] = {}
    cluster = json.loads(admin.call("GET", "/admin/v2/clusters"))[0]
    for name, paths in namespaces(topics):
        # A tenant each: how fast one makes topics is limited.
        admin.call("PUT", f"/admin/v2/tenants/{name.partition('/')[0]}", {"allowedClusters": [cluster]})
        admin.call("PUT", f"/admin/v2/namespaces/{name}", {})
        unused = {**KEEP, "deleteWhileInactive": False}
        admin.call("POST", f"/admin/v2/namespaces/{name}/inactiveTopicPolicies", unused)
        before = meter.now()
        every(broker.http_url, "PUT", paths)
        after = meter.now()
        if not found:
            found = {
                "create_10k_s": after.wall_s - before.wall_s,
                "create_10k_cpu_s": after.broker_cpu_s - before.broker_cpu_s,
            }
    return found


def stalls(admin: Admin) -> tuple[int, int]:
    """How often the event loop was looked at, and how often others had waited for more than 20 ms."""
    text = gzip.decompress(admin.call("GET", "/metrics")).decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if "loop_stall" in line)
    looks = int(values["magnetar_loop_stall_seconds_count"])
    return looks, looks - int(values['magnetar_loop_stall_seconds_bucket{le="0.02"}'])


def ask(broker: Broker, meter: Meter) -> dict[str, float]:
    """Lists, metrics, a policy."""
    admin = Admin(broker.http_url)
    found: dict[str, float] = {}
    for name, path in (("list_10k", "/admin/v2/persistent/known-0/n"), ("scrape", "/metrics")):
        late_before = stalls(admin)[1]
        walls, cpus, size = [], [], 0
        for _ in range(ASKED):
            before = meter.now()
            size = len(admin.call("GET", path))
            after = meter.now()
            walls.append((after.wall_s - before.wall_s) * 1000)
            cpus.append((after.broker_cpu_s - before.broker_cpu_s) * 1000)
            time.sleep(0.2)
        found |= {
            f"{name}_ms": statistics.median(walls),
            f"{name}_cpu_ms": statistics.median(cpus),
            f"{name}_stalls_over_20_ms": float(stalls(admin)[1] - late_before),
            f"{name}_gzip_kb": size / 1000,
        }
    return found | {"policy_seen_ms": policy_seen_ms(admin)}


def policy_seen_ms(admin: Admin) -> float:
    """From setting a namespace's policy until a message is refused because of it."""
    path = "/topics/persistent/known-0/n/topic-0"
    policy = "/admin/v2/persistent/known-0/n/topic-0/maxMessageSize"
    body = {"messages": [{"payload": "x" * 100}]}
    assert b"errorCode" not in admin.call("POST", path, body)
    begin_s = time.perf_counter()
    admin.call("POST", policy, 10)
    while b"errorCode" not in admin.call("POST", path, body):
        time.sleep(0.001)
    took_ms = (time.perf_counter() - begin_s) * 1000
    admin.call("DELETE", policy)
    return took_ms


def measure(folder: Path, seconds: float, topics: int, *, loaded: bool) -> dict[str, float]:
    """All figures."""
    free = Cpus(None, None)
    # Closing a topic takes about a millisecond: all of them together take longer than a test can wait.
    stop = signal.SIGKILL if loaded else signal.SIGTERM
    with started(magnetar_command(), folder, free, stop_signal=stop) as broker:
        meter = Meter(broker.pid)
        found = {"rss_empty_mb": meter.rss_bytes() / MEGA} | make(broker, meter, topics)
        found["rss_known_mb"] = meter.rss_bytes() / MEGA
        if loaded:
            before = meter.now()
            for _, paths in namespaces(topics):
                every(broker.http_url, "GET", [f"{path}/stats" for path in paths])
            after = meter.now()
            found["load_cpu_s"] = after.broker_cpu_s - before.broker_cpu_s
            found["rss_loaded_mb"] = meter.rss_bytes() / MEGA
        load = TopicsLoad(topics=min(ACTIVE, topics))
        trickle = run_topics(
            broker.service_url,
            "persistent://known-0/n/topic",
            meter,
            load,
            warm_up_s=1.0,
            seconds=seconds,
        )
        found |= {name: trickle[name] for name in ("open_s", "p50_ms", "p99_ms") if name in trickle}
        found["rss_active_mb"] = meter.rss_bytes() / MEGA
        found |= ask(broker, meter)
    with started(magnetar_command(), folder, free) as broker:
        assert broker.ready_s is not None
        found["start_s"] = broker.ready_s
        found["start_cpu_s"] = Meter(broker.pid).now().broker_cpu_s
        found["rss_started_mb"] = Meter(broker.pid).rss_bytes() / MEGA
    return found


def main() -> None:
    """Measures and writes what it found."""
    parser = argparse.ArgumentParser(prog="python -m bench.known_topics")
    parser.add_argument("argument", nargs="?", choices=["loaded"], help="all topics are in memory")
    parser.add_argument("--seconds", type=float, default=5.0, help="of messages to the used topics")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        loaded = options.argument is not None
        found = measure(Path(scratch), options.seconds, options.topics, loaded=loaded)
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
