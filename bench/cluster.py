"""How soon brokers share load: one that joins, and a spike on one namespace. A program of its own:

    python -m bench.cluster --metadata zk://127.0.0.1:2181/ledgers

Starts two bookies and two brokers (`magnetar broker`) on the metadata service and publishes with the official
Python client. Join: a third broker starts while eight bundles are in use; the figure is the time from its
readiness until it has two of them, its share. Spike: a namespace with one bundle of 16 topics gets ten times
its messages; the figure is the time until no broker has more than 60 % of them. Nothing is done by an
operator. Every message must be acknowledged.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from bench.failover import _bookie, _broker, _Member

_WAIT_S: Final = 180.0
_SHARE_MAX: Final = 0.6
"""Part of the messages of a namespace at one broker that counts as spread."""


def _admin(member: _Member, method: str, path: str, body: object = None) -> Any:
    request = Request(f"{member.urls['http_url']}/admin/v2/{path}", method=method)
    request.add_header("Content-Type", "application/json")
    data = None if body is None else json.dumps(body).encode()
    with urlopen(request, data, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _loads(brokers: list[_Member], namespace: str) -> list[tuple[int, float]]:
    """What each broker reports: bundles of the namespace in use, and their messages per second."""
    found = []
    for each in brokers:
        stats = _admin(each, "GET", "broker-stats/load-report").get("lastStats", {})
        rates = [load["msgRateIn"] for name, load in stats.items() if name.startswith(f"{namespace}/")]
        found.append((len(rates), sum(rates)))
    return found


class _Stream:
    """Publishes to all topics of a namespace at a rate that may change."""

    def __init__(self, brokers: list[_Member], namespace: str, topics: int, rate: float) -> None:
        import pulsar

        hosts = ",".join(each.urls["broker_url"].removeprefix("pulsar://") for each in brokers)
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(f"pulsar://{hosts}", logger=quiet, operation_timeout_seconds=60)
        names = [f"persistent://{namespace}/t{number}" for number in range(topics)]
        self._producers = [
            self._client.create_producer(
                name, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
            )
            for name in names
        ]
        self.rate = rate
        """Messages per second on all topics together."""
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        due, last = 0.0, time.monotonic()
        while not self._ends.wait(0.005):
            now = time.monotonic()
            due = min(due + (now - last) * self.rate, self.rate)
            last = now
            while due >= 1:
                due -= 1
                producer = self._producers[self.sent % len(self._producers)]
                self.sent += 1
                producer.send_async(b"x" * 100, lambda result, _: self._told(str(result)))

    def _told(self, result: str) -> None:
        if result.endswith("Ok"):
            self.acknowledged += 1
        else:
            self.failed += 1

    def end(self) -> None:
        """Waits for every acknowledgement."""
        self._ends.set()
        self._thread.join()
        deadline = time.monotonic() + 60
        while self.acknowledged + self.failed < self.sent and time.monotonic() < deadline:
            time.sleep(0.1)  # the callbacks come in another thread; the deadline bounds the wait
        self._client.close()
        assert not self.failed, f"{self.failed} messages were refused"
        assert self.acknowledged == self.sent, f"{self.sent - self.acknowledged} messages lack a receipt"


def _until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > _WAIT_S:
            raise SystemExit(f"not within {_WAIT_S:.0f} s: {what}")
        time.sleep(0.25)  # reports come every 5 s; this is the resolution of the figure
    return time.monotonic() - began


def _join(brokers: list[_Member], folder: Path, options: argparse.Namespace) -> str:
    namespace = "public/joined"
    _admin(brokers[0], "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 8}})
    stream = _Stream(brokers, namespace, 32, options.rate)
    _until(lambda: sum(count for count, _ in _loads(brokers, namespace)) == 8, "eight bundles are in use")
    joined = _broker(folder, options.metadata, len(brokers))
    brokers.append(joined)

    def owned() -> bool:
        name = joined.urls["http_url"].removeprefix("http://")
        found = _admin(brokers[0], "GET", f"brokers/standalone/{name}/ownedNamespaces")
        return len([each for each in found if each.startswith(namespace)]) >= 2

    _until(lambda: len(_admin(brokers[0], "GET", "brokers")) == len(brokers), "the broker is known")
    took_s = _until(owned, "the new broker has its share")
    stream.end()
    return f"a broker that joined had 2 of 8 bundles after {took_s:.1f} s; {stream.sent} acknowledged"


def _spike(brokers: list[_Member], options: argparse.Namespace) -> str:
    namespace = "public/spiked"
    _admin(brokers[0], "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    stream = _Stream(brokers, namespace, 16, options.rate / 10)
    _until(lambda: sum(rate for _, rate in _loads(brokers, namespace)) > 0, "messages are counted")
    time.sleep(60)  # no broker is new any more: what follows is shedding, not the share of a new one
    stream.rate = options.rate

    def spread() -> bool:
        rates = [rate for _, rate in _loads(brokers, namespace)]
        return sum(rates) > 0 and max(rates) <= _SHARE_MAX * sum(rates)

    took_s = _until(spread, "no broker has most of the spike")
    stream.end()
    bundles = len(_admin(brokers[0], "GET", f"namespaces/{namespace}/bundles")["boundaries"]) - 1
    return f"a spike was spread after {took_s:.1f} s, in {bundles} bundles; {stream.sent} acknowledged"


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of a metadata service without a cluster")
    parser.add_argument("--rate", type=float, default=10_000, help="messages per second of a spike (10000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-cluster-") as name:
        folder = Path(name)
        members: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            brokers: list[_Member] = []
            try:
                brokers.extend(_broker(folder, options.metadata, number) for number in range(2))
                print(_join(brokers, folder, options), flush=True)
                print(_spike(brokers, options), flush=True)
            finally:
                for broker in brokers:
                    broker.end(signal.SIGKILL)
        finally:
            for member in members:
                member.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
