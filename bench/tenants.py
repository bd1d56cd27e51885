"""What one tenant feels of another: latency of a quiet one alone, then beside one that takes what it can get.

    python -m bench tenants                          every kind of neighbour, a fresh broker for each
    python -m bench tenants flood topics             some of them
    python -m bench.tenants KIND --seconds S --service-url URL --http-url URL --json FILE

The quiet tenant sends 200 messages of 1 KiB a second, each at its intended time, to a consumer of its
own. It sleeps between them, in the real-time class where that is allowed, so that the neighbour's process on
the same core is not charged to the broker. The neighbours: `neighbours.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from bench.broker import Broker, Cpus, magnetar_command, started
from bench.histogram import Latencies, due_count, intended_ns
from bench.known_topics import Admin
from bench.latency import Arrivals, OpenLoopPublisher
from bench.meter import MEGA, Meter, no_garbage_collection
from bench.neighbours import KINDS, TENANT, said
from bench.pulsar_driver import PulsarDriver
from bench.scan import BrokerAnswerError

QUIET: Final = "quiet"
RATE_PER_S: Final = 200
PAYLOAD_BYTES: Final = 1024
QUEUE: Final = 1_000
WARM_UP_S: Final = 1.0
SETTLE_S: Final = 1.0
"""The neighbour is at work for so long before it counts."""
DRAIN_S: Final = 20.0
READY_S: Final = 30.0


class QuietTenant:
    """A producer and a consumer of one topic."""

    def __init__(self, service_url: str) -> None:
        driver = PulsarDriver(service_url)
        topic = f"persistent://{QUIET}/n/steady"
        self._consumer = driver.consumer(topic, queue_messages=QUEUE, backlog=False)
        lane = driver.lane(topic, payload_bytes=PAYLOAD_BYTES, messages_per_entry=1)
        self._publisher = OpenLoopPublisher(lane)
        self._consumer.start(self._publisher.template)
        self._poll = select.poll()
        self._poll.register(self._publisher.socket, select.POLLIN)
        self._poll.register(self._consumer.socket, select.POLLIN)

    def measure(self, seconds: float) -> dict[str, float]:
        """Latencies of so many seconds, in milliseconds. Raises BrokerAnswerError when messages get lost."""
        before = self._publisher.sent
        count = int(RATE_PER_S * seconds)
        receipts, deliveries = Arrivals(count), Arrivals(count)
        clock = time.perf_counter_ns
        start_ns = clock() + 10_000_000
        end_ns = start_ns + int((seconds + DRAIN_S) * 1e9)
        while deliveries.count < count or receipts.count < count:
            now = clock()
            due = min(count, due_count(start_ns, RATE_PER_S, now))
            self._publisher.send(before + due)
            while self._publisher.receive():
                receipts.until(min(count, self._publisher.acknowledged - before), clock())
            self._consumer.receive()
            if self._consumer.entries_received - before > deliveries.count:
                deliveries.until(min(count, self._consumer.entries_received - before), clock())
            if now > end_ns:
                raise BrokerAnswerError(
                    f"{count - deliveries.count} messages of the quiet tenant are missing"
                )
            self._publisher.prepare()
            next_ns = start_ns + due * 1_000_000_000 // RATE_PER_S
            self._poll.poll(max(0, (next_ns - clock()) / 1e6) if due < count else 10)
        due_ns = intended_ns(start_ns, RATE_PER_S, 0, count).reshape(count, 1)
        found: dict[str, float] = {}
        for prefix, arrivals in (("", receipts), ("end_to_end_", deliveries)):
            latencies = Latencies()
            latencies.record(np.asarray(arrivals.latencies(due_ns, 0)))
            found |= latencies.milliseconds(prefix)
        return found

    def close(self) -> None:
        """Closes both sockets."""
        self._publisher.socket.close()
        self._consumer.socket.close()


def first_in_line() -> None:
    """Lets this process run before others of its core, where that is allowed."""
    with suppress(PermissionError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def tenants(http_url: str) -> None:
    """Makes both, with a namespace each."""
    admin = Admin(http_url)
    cluster = json.loads(admin.call("GET", "/admin/v2/clusters"))[0]
    for tenant in (QUIET, TENANT):
        admin.call("PUT", f"/admin/v2/tenants/{tenant}", {"allowedClusters": [cluster]})
        admin.call("PUT", f"/admin/v2/namespaces/{tenant}/n", {})


def measure(broker: Broker, kind: str, seconds: float) -> dict[str, float]:
    """The quiet tenant alone, beside the neighbour, and alone again."""
    tenants(broker.http_url)
    meter = Meter(broker.pid)
    first_in_line()
    quiet = QuietTenant(broker.service_url)
    quiet.measure(WARM_UP_S)
    with no_garbage_collection():
        alone = quiet.measure(seconds)
        command = [sys.executable, "-m", "bench.neighbours", kind]
        command += ["--service-url", broker.service_url, "--http-url", broker.http_url]
        with tempfile.TemporaryFile("w+") as output:
            neighbour = subprocess.Popen(command, stdout=output, stdin=subprocess.DEVNULL)
            try:
                _await_ready(neighbour, Path(f"/proc/self/fd/{output.fileno()}"))
                quiet.measure(SETTLE_S)
                before = meter.now()
                beside = quiet.measure(seconds)
                after = meter.now()
                rss_mb = meter.rss_bytes() / MEGA
                if neighbour.poll() is not None:
                    raise BrokerAnswerError(f"the neighbour {kind} ended by itself")
            finally:
                neighbour.kill()
                neighbour.wait()
            output.seek(0)
            did = said(iter(output))
    quiet.close()
    found = {"rss_mb": rss_mb, "done": float(did["done"]), "refused": float(did["refused"])}
    if broker.pid:
        found["broker_cores"] = (after.broker_cpu_s - before.broker_cpu_s) / (after.wall_s - before.wall_s)
    for name in ("p50_ms", "p99_ms", "max_ms", "end_to_end_p50_ms", "end_to_end_p99_ms"):
        found[f"alone_{name}"] = alone[name]
        found[f"beside_{name}"] = beside[name]
    found["p99_ratio"] = beside["p99_ms"] / alone["p99_ms"]
    found["end_to_end_p99_ratio"] = beside["end_to_end_p99_ms"] / alone["end_to_end_p99_ms"]
    return found


def _await_ready(neighbour: subprocess.Popen[bytes], output: Path) -> None:
    deadline_s = time.perf_counter() + READY_S
    while "ready" not in output.read_text():
        if neighbour.poll() is not None or time.perf_counter() > deadline_s:
            raise BrokerAnswerError("the neighbour did not begin")
        time.sleep(0.05)


def main() -> int:
    """One neighbour against a broker that runs, or several with brokers of their own."""
    parser = argparse.ArgumentParser(
        prog="python -m bench tenants", description="Does one tenant harm others?"
    )
    parser.add_argument("kind", nargs="*", help=f"of {', '.join(KINDS)}; all when none is given")
    parser.add_argument("--seconds", type=float, default=10.0, help="alone, and beside the neighbour (10)")
    parser.add_argument("--runs", type=int, default=1, help="of each, in turn (1)")
    parser.add_argument("--cpus", default="0,1", help='cores of broker and clients; "free" pins nothing')
    parser.add_argument("--service-url")
    parser.add_argument("--http-url")
    parser.add_argument("--broker-pid", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := set(options.kind) - set(KINDS):
        parser.error(f"no neighbour {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    if options.service_url:
        broker = Broker(options.service_url, options.http_url, options.broker_pid)
        found = measure(broker, options.kind[0], options.seconds)
        options.json.write_text(json.dumps(found))
        return 0
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kind or KINDS}
    cores = None if options.cpus == "free" else [int(core) for core in options.cpus.split(",")]
    for _ in range(options.runs):
        for kind, runs in results.items():
            runs.append(_fresh(kind, options.seconds, cores))
            print(f"{kind:12} {_line(runs[-1])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.runs > 1:
        for kind, runs in results.items():
            median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            print(f"{kind:12} {_line(median)}   median")
    return 0


def _fresh(kind: str, seconds: float, cores: list[int] | None) -> dict[str, float]:
    cpus = Cpus(*cores) if cores else Cpus(None, None)
    affinity = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder, started(magnetar_command(), Path(folder), cpus) as broker:
        if cpus.generator is not None:
            os.sched_setaffinity(0, {cpus.generator})
        try:
            return measure(broker, kind, seconds)
        finally:
            os.sched_setaffinity(0, affinity)


def _line(found: dict[str, float]) -> str:
    return (
        f"p50 {found['alone_p50_ms']:.2f} → {found['beside_p50_ms']:.2f} ms, "
        f"p99 {found['alone_p99_ms']:.2f} → {found['beside_p99_ms']:.2f} ms (×{found['p99_ratio']:.1f}), "
        f"end to end ×{found['end_to_end_p99_ratio']:.1f}, max {found['beside_max_ms']:.0f} ms; "
        f"neighbour did {found['done']:,.0f}, refused {found['refused']:,.0f}; "
        f"broker {found.get('broker_cores', float('nan')):.2f} cores, {found['rss_mb']:.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
