"""What idle brokers cost etcd and each other, by how many there are. A program of its own:

    python -m bench.members --metadata etcd://127.0.0.1:2379/ledgers --brokers 2 4 8 12

Starts so many brokers on an etcd that has nothing else to do, waits until all have settled, and reads
etcd's own counters over a stretch of seconds. Nothing is published: what is counted are the reports of the
brokers, and how they follow those of the others.

With `--changes 100` another program changes metadata meanwhile, as often a second: the list of a topic and
the metadata of its ledger, as when a ledger rolls over, in a namespace that none of these brokers serves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from bench import machine
from bench.failover import _bookie, _broker, _Member
from bench.meter import MEGA, Meter
from magnetar.metadata.adoption import scope_of
from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.runtime.clock import SystemClock

_GAUGES: Final = (
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_debugging_mvcc_keys_total",
    "process_resident_memory_bytes",
)
CLUSTER: Final = "standalone"
"""Name of the cluster that the brokers have."""
_TOPICS: Final = 1_000
"""Topics that are changed in turn."""
_SETTLE_S: Final = 10.0
"""After the last broker is ready, until the stretch begins."""


def etcd_counters(metadata: str) -> dict[str, float]:
    """Calls that etcd has answered, by method, and the bytes and keys that it has."""
    (host, port), *_ = parse_metadata_url(metadata).addresses
    with urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "grpc_server_handled_total":
                method = sample.labels["grpc_method"]
                found[method] = found.get(method, 0.0) + sample.value
            elif sample.name == "etcd_debugging_mvcc_events_total":
                found["notes of changes"] = sample.value
            elif sample.name in _GAUGES:
                found[sample.name] = sample.value
    return found


class _Changes:
    """A thread that changes metadata, so often a second."""

    def __init__(self, metadata: str, per_s: float) -> None:
        self.made = 0
        self._per_s = per_s
        self._url = parse_metadata_url(metadata)
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))

    def __enter__(self) -> _Changes:
        if self._per_s:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._per_s:
            self._thread.join()

    async def _work(self) -> None:
        store = await open_metadata(self._url, SystemClock(), session_timeout_ms=30_000)
        root, started_s = self._url.root.rstrip("/"), time.monotonic()
        while not self._over.is_set():
            topic = self.made % _TOPICS
            await store.put(f"{root}/00/0000/L{topic:04d}", b"x" * 100)
            path = f"{scope_of(CLUSTER)}{MANAGED_LEDGERS}/bench/elsewhere/persistent/t{topic}"
            await store.put(path, b"x" * 100)
            self.made += 1
            await asyncio.sleep(max(0.0, started_s + self.made / self._per_s - time.monotonic()))
        await store.close()


def _measure(metadata: str, brokers: list[_Member], seconds: float, changes: _Changes) -> None:
    time.sleep(_SETTLE_S)  # what brokers do in their first seconds does not count
    meters = [Meter(each.pid) for each in brokers]
    made = changes.made
    before, started = etcd_counters(metadata), [meter.now() for meter in meters]
    time.sleep(seconds)  # the stretch
    after, ended = etcd_counters(metadata), [meter.now() for meter in meters]
    rates = {name: (after[name] - before.get(name, 0.0)) / seconds for name in after}
    cores = [
        (last.broker_cpu_s - first.broker_cpu_s) / (last.wall_s - first.wall_s)
        for first, last in zip(started, ended, strict=True)
    ]
    memory = sum(meter.rss_bytes() for meter in meters) / len(meters) / MEGA
    reads = rates.get("Range", 0.0) + rates.get("Txn", 0.0)
    print(
        f"{len(brokers)} brokers: {reads:.0f} reads and writes a second at etcd"
        f" (Range {rates.get('Range', 0.0):.0f}, Txn {rates.get('Txn', 0.0):.0f}),"
        f" {rates.get('notes of changes', 0.0):.0f} changes a second told to brokers"
        f" while {(changes.made - made) / seconds:.0f} topics a second were changed;"
        f" a broker uses {100 * sum(cores) / len(cores):.1f} % of a core and {memory:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.members", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of an etcd without a cluster")
    parser.add_argument("--brokers", type=int, nargs="+", default=[2, 4, 8], help="numbers of brokers")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a stretch (30)")
    parser.add_argument("--changes", type=float, default=0.0, help="topics changed a second (0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-members-") as name:
        folder = Path(name)
        print(" · ".join(map(str, machine.describe(folder).values())), flush=True)
        members: list[_Member] = []
        brokers: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            for count in sorted(options.brokers):
                while len(brokers) < count:
                    brokers.append(_broker(folder, options.metadata, len(brokers)))
                with _Changes(options.metadata, options.changes) as changes:
                    _measure(options.metadata, brokers, options.seconds, changes)
        finally:
            for member in (*brokers, *members):
                member.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
