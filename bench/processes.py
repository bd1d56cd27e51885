"""What does a message cost with several broker processes behind one port? A program of its own:

    python -m bench.processes --metadata etcd://127.0.0.1:2379/ledgers [--processes 4] [--rounds 5]

Starts two bookies and two clusters on the metadata service: a broker of one process, and one with
`--processes`. The official Python client publishes to topics and receives from them, through the one port:
16 topics and the same rate for each process, since several processes are there for more load. `--same-rate`
gives all together the load of one. Rounds alternate between the two clusters, so that what else the machine
does is in both. The figure is the CPU time of all broker processes together for each message that was
published and received; the ratio is the median of the rounds' ratios. What idle processes use is part of the
figure, and is measured in the end. Memory is the private memory of the processes (USS) after the last round.
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

from bench import proc
from bench.failover import _bookie, _Member

_TOPICS: Final = 16
"""Topics of each process."""
_PAYLOAD: Final = b"x" * 1024
_WARM_UP_S: Final = 3.0
_SETTLE_S: Final = 30.0
_IDLE_S: Final = 10.0


class _Cluster:
    """A broker of one or more processes, with its clients."""

    def __init__(self, folder: Path, metadata: str, name: str, count: int) -> None:
        (folder / f"{name}.toml").write_text(f'cluster = "{name}"\n')
        options = ("--config", str(folder / f"{name}.toml"), "--port", "0", "--http-port", "0")
        several = ("--processes", str(count)) if count > 1 else ()
        self.member = _Member(folder, name, "broker", "--metadata", metadata, *options, *several)
        ready: dict[str, Any] = self.member.urls
        processes = ready.get("processes")
        self.pids = [each["pid"] for each in processes] if processes else [self.member.pid]
        self.count = count

    def cpu_s(self) -> float:
        """CPU time of all processes so far, of the supervisor too."""
        return proc.usage(self.member.pid).cpu_s

    def private_mib(self) -> float:
        """Memory that no two processes share."""
        total = 0
        for pid in {*self.pids, self.member.pid}:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Private_"):
                    total += int(line.split()[1])
        return total / 1024


class _Load:
    """A client that publishes to all topics at a rate, and receives everything."""

    def __init__(self, url: str, number: int, topics: int) -> None:
        import pulsar

        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(url, logger=quiet, operation_timeout_seconds=60)
        self.received = 0
        self.failed = 0
        self._lock = threading.Lock()
        names = [f"persistent://public/default/round-{number}-{topic}" for topic in range(topics)]
        for name in names:
            self._client.subscribe(name, "bench", message_listener=self._take)
        options = {"batching_enabled": False, "block_if_queue_full": True}
        self._producers = [self._client.create_producer(each, **options) for each in names]
        self.sent = 0

    def _take(self, consumer: Any, message: Any) -> None:
        consumer.acknowledge(message)
        with self._lock:
            self.received += 1

    def _told(self, result: object, _: object) -> None:
        if not str(result).endswith("Ok"):
            self.failed += 1

    def publish(self, rate: float, seconds: float) -> None:
        """Publishes for the time given, evenly over the topics."""
        began = time.monotonic()
        base = self.sent
        while (passed := time.monotonic() - began) < seconds:
            while self.sent - base < passed * rate:
                self._producers[self.sent % len(self._producers)].send_async(_PAYLOAD, self._told)
                self.sent += 1
            time.sleep(0.002)  # what became due meanwhile is sent at once

    def settle(self) -> None:
        """Returns when everything was received."""
        deadline = time.monotonic() + _SETTLE_S
        while self.received < self.sent and time.monotonic() < deadline:
            time.sleep(0.01)  # the listeners run in threads of the client; the deadline bounds the wait
        if self.failed or self.received < self.sent:
            raise SystemExit(f"{self.sent} sent, {self.received} received, {self.failed} failed")

    def close(self) -> None:
        self._client.close()


def _round(cluster: _Cluster, number: int, options: argparse.Namespace) -> float:
    """Microseconds of CPU time for each message."""
    loads = 1 if options.same_rate else cluster.count
    load, rate = _Load(cluster.member.urls["broker_url"], number, loads * _TOPICS), loads * options.rate
    load.publish(rate, _WARM_UP_S)
    load.settle()
    before, sent = cluster.cpu_s(), load.sent
    load.publish(rate, options.seconds)
    load.settle()
    used = cluster.cpu_s() - before
    load.close()
    return 1e6 * used / (load.sent - sent)


def main() -> None:
    """Prints JSON: CPU time per message of both, their ratio, and what idle processes use."""
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of a metadata service without a cluster")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=float, default=1_000, help="messages per second and process (1000)")
    parser.add_argument("--same-rate", action="store_true", help="for all processes together as for one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-processes-") as name:
        folder = Path(name)
        members: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            clusters = [
                _Cluster(folder, options.metadata, "one", 1),
                _Cluster(folder, options.metadata, "several", options.processes),
            ]
            members.extend(each.member for each in clusters)
            rounds = []
            for number in range(options.rounds):
                order = clusters if number % 2 else clusters[::-1]
                found = {each.count: _round(each, number, options) for each in order}
                rounds.append([found[each.count] for each in clusters])
                print(json.dumps([round(each, 1) for each in rounds[-1]]), flush=True)
            memory = [each.private_mib() for each in clusters]
            idle = [each.cpu_s() for each in clusters]
            time.sleep(_IDLE_S)  # the measurement of idle processes
            idle = [(each.cpu_s() - before) / _IDLE_S for each, before in zip(clusters, idle, strict=True)]
        finally:
            for member in reversed(members):
                member.end(signal.SIGKILL)
    each_us = [round(statistics.median(each), 1) for each in zip(*rounds, strict=True)]
    result = {
        "processes": [1, options.processes],
        "cpu_us_per_message": each_us,
        "ratio": round(statistics.median(several / one for one, several in rounds), 3),
        "idle_cpu_percent": [round(100 * each, 2) for each in idle],
        "private_mib": [round(each) for each in memory],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
