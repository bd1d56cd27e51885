"""What very many topics cost the brokers of a cluster. A program of its own:

    python -m bench.scale --metadata etcd://127.0.0.1:2379/ledgers --topics 10000 100000 1000000

The topics are written into the metadata service as a broker writes new ones, in namespaces of 10,000 with 16
bundles each, so that a million of them take minutes and not hours. For each number of topics a broker is
started beside the others, and look-ups over HTTP, a listing, and the first message of topics are timed. At
the end all topics are looked up, one of the brokers is killed, and those that it served are looked up again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench import machine
from bench.failover import _bookie, _broker, _Member
from bench.known_topics import Admin
from bench.members import etcd_counters
from bench.meter import MEGA, Meter
from magnetar.base.names import TopicName
from magnetar.metadata.keys import MANAGED_LEDGERS
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.metadata.scoped import ScopedMetadataStore
from magnetar.metadata.store import OPERATIONS_MAX, Put
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import gathered

IN_NAMESPACE: Final = 10_000
_BUNDLES: Final = 16
_AT_ONCE: Final = OPERATIONS_MAX
"""Topics of one write."""
_WRITES: Final = 16
"""Writes under way."""
_SETTLE_S: Final = 10.0
"""After a broker is ready, until its memory and processor time are read."""
_CALLERS: Final = 4
_REDIRECTS_MAX: Final = 10
_NUMBERS: Final = itertools.count()
"""Numbers of the brokers that are started."""


def name_of(number: int) -> TopicName:
    """The topic of this number, from 0."""
    return TopicName.parse(f"persistent://scale/n{number // IN_NAMESPACE}/t{number % IN_NAMESPACE}")


async def _fill(metadata: str, cluster: str, numbers: range, value: bytes) -> None:
    service = await open_metadata(parse_metadata_url(metadata), SystemClock(), call_timeout_s=60.0)
    try:
        store = ScopedMetadataStore(service, f"/magnetar/{cluster}")
        starts = iter(range(numbers.start, numbers.stop, _AT_ONCE))

        async def write() -> None:
            for start in starts:
                names = [name_of(each) for each in range(start, min(start + _AT_ONCE, numbers.stop))]
                await store.transact([Put(f"{MANAGED_LEDGERS}/{name.log_name}", value) for name in names])

        await gathered(write() for _ in range(_WRITES))
    finally:
        await service.close()


async def _value(metadata: str, cluster: str, topic: TopicName) -> bytes:
    """What a broker wrote for a topic that it has just made."""
    service = await open_metadata(parse_metadata_url(metadata), SystemClock(), call_timeout_s=60.0)
    try:
        store = ScopedMetadataStore(service, f"/magnetar/{cluster}")
        found = await store.get(f"{MANAGED_LEDGERS}/{topic.log_name}")
        assert found is not None, f"{topic} was made and is not in the metadata"
        return found.data
    finally:
        await service.close()


class _Caller:
    """Calls brokers over HTTP, on one connection to each, and follows them to the owner of a topic."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._to: dict[str, HTTPConnection] = {}

    def owner(self, topic: TopicName) -> str:
        """The address of the broker that serves the topic."""
        base = topic.base
        path = f"/lookup/v2/topic/{base.domain}/{base.tenant}/{base.namespace}/{base.local}"
        return str(json.loads(self.call("GET", path))["brokerUrl"])

    def call(self, method: str, path: str) -> bytes:
        """The body of the answer."""
        host = urlsplit(self._url).netloc
        for _ in range(_REDIRECTS_MAX):
            connection = self._to.setdefault(host, HTTPConnection(host, timeout=60))
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status < 300:
                return body
            if answer.status != 307:
                raise RuntimeError(f"{method} {path}: {answer.status} {body[:200]!r}")
            target = urlsplit(answer.headers["Location"])
            host, path = target.netloc, f"{target.path}?{target.query}"
        raise RuntimeError(f"{method} {path}: more than {_REDIRECTS_MAX} redirections")


def _look_up(
    urls: Sequence[str], names: Sequence[TopicName]
) -> tuple[list[float], dict[str, list[TopicName]]]:
    """Milliseconds of each look-up, and the topics by the broker that serves them."""

    def part(number: int) -> list[tuple[float, str, TopicName]]:
        caller = _Caller(urls[number % len(urls)])
        found = []
        for name in names[number::_CALLERS]:
            began = time.perf_counter()
            owner = caller.owner(name)
            found.append(((time.perf_counter() - began) * 1000, owner, name))
        return found

    with ThreadPoolExecutor(_CALLERS) as pool:
        rows = [row for rows in pool.map(part, range(_CALLERS)) for row in rows]
    served: dict[str, list[TopicName]] = {}
    for _, owner, name in rows:
        served.setdefault(owner, []).append(name)
    return [took for took, _, _ in rows], served


def _publish(brokers: Sequence[_Member], names: Sequence[TopicName]) -> list[float]:
    """Milliseconds until the first message of each topic is acknowledged, one topic after the other."""
    import pulsar

    hosts = ",".join(each.urls["broker_url"].removeprefix("pulsar://") for each in brokers)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://{hosts}", logger=quiet, operation_timeout_seconds=60)
    took = []
    for name in names:
        began = time.perf_counter()
        producer = client.create_producer(str(name), batching_enabled=False)
        producer.send(b"x")
        took.append((time.perf_counter() - began) * 1000)
        producer.close()
    client.close()
    return took


def _told(milliseconds: Iterable[float]) -> str:
    ordered = sorted(milliseconds)
    return f"p50 {statistics.median(ordered):.1f}, p99 {ordered[int(0.99 * (len(ordered) - 1))]:.1f} ms"


def _started(folder: Path, options: argparse.Namespace, brokers: list[_Member]) -> tuple[_Member, str]:
    """A broker beside these, and what its start took."""
    began = time.perf_counter()
    broker = _broker(folder, options.metadata, next(_NUMBERS))
    ready_s = time.perf_counter() - began
    brokers.append(broker)
    time.sleep(_SETTLE_S)  # what it does in its first seconds counts
    meter = Meter(broker.pid)
    used = f"{meter.now().broker_cpu_s:.2f} CPU s in {_SETTLE_S:.0f} s, {meter.rss_bytes() / MEGA:.0f} MB"
    return broker, f"start {ready_s:.2f} s, {used}"


def _measure(folder: Path, options: argparse.Namespace, brokers: list[_Member]) -> None:
    chance = random.Random(options.seed)
    known = 0
    first = name_of(0)
    admin = Admin(brokers[0].urls["http_url"])
    clusters = json.loads(admin.call("GET", "/admin/v2/clusters"))
    admin.call("PUT", "/admin/v2/tenants/scale", {"allowedClusters": clusters})
    admin.call("PUT", f"/admin/v2/namespaces/{first.namespace_name}", {"bundles": {"numBundles": _BUNDLES}})
    _Caller(brokers[0].urls["http_url"]).call(
        "PUT", f"/admin/v2/persistent/{first.namespace_name}/{first.local}"
    )
    value = asyncio.run(_value(options.metadata, options.cluster, first))
    for count in sorted(options.topics):
        began = time.perf_counter()
        admin = Admin(brokers[0].urls["http_url"])
        for number in range(-(-known // IN_NAMESPACE) or 1, -(-count // IN_NAMESPACE)):
            name = name_of(number * IN_NAMESPACE).namespace_name
            admin.call("PUT", f"/admin/v2/namespaces/{name}", {"bundles": {"numBundles": _BUNDLES}})
        asyncio.run(_fill(options.metadata, options.cluster, range(max(known, 1), count), value))
        known = count
        print(f"{count:,} topics, written in {time.perf_counter() - began:.0f} s", flush=True)
        if options.metadata.startswith("etcd:"):
            counted = etcd_counters(options.metadata)
            stored, keys = (
                counted["etcd_mvcc_db_total_size_in_bytes"],
                counted["etcd_debugging_mvcc_keys_total"],
            )
            memory = counted["process_resident_memory_bytes"] / MEGA
            print(
                f"  etcd: {keys:,.0f} keys, {stored / MEGA:.0f} MB stored, {memory:.0f} MB of memory",
                flush=True,
            )
        broker, start = _started(folder, options, brokers)
        print(f"  a further broker: {start}", flush=True)
        urls = [broker.urls["http_url"]]
        names = [name_of(chance.randrange(count)) for _ in range(options.looked_up)]
        for what in ("first", "second"):
            print(f"  {what} look-up of {len(names):,} topics: {_told(_look_up(urls, names)[0])}", flush=True)
        began = time.perf_counter()
        listed = json.loads(_Caller(urls[0]).call("GET", f"/admin/v2/persistent/{first.namespace_name}"))
        took_ms = (time.perf_counter() - began) * 1000
        print(f"  list of a namespace with {len(listed):,} topics: {took_ms:.0f} ms", flush=True)
        opened = _publish([broker], names[: options.opened])
        print(f"  first message of {len(opened)} topics, one after the other: {_told(opened)}", flush=True)
        members = ", ".join(f"{Meter(each.pid).rss_bytes() / MEGA:.0f}" for each in brokers)
        print(f"  memory of the brokers: {members} MB", flush=True)
        broker.end(signal.SIGTERM)
        brokers.remove(broker)


def _fail_over(options: argparse.Namespace, brokers: list[_Member]) -> None:
    count = min(max(options.topics), options.failed_over)
    names = [name_of(number) for number in range(count)]
    began = time.perf_counter()
    _, served = _look_up([each.urls["http_url"] for each in brokers], names)
    print(
        f"{count:,} topics over {len(brokers)} brokers, each looked up: {time.perf_counter() - began:.1f} s"
    )
    print(f"  topics of each broker: {', '.join(f'{len(each):,}' for each in served.values())}", flush=True)
    known = {each.urls["broker_url"] for each in brokers}
    assert served.keys() <= known, f"look-ups name {served.keys() - known}, which has ended"
    owner = max(served, key=lambda url: len(served[url]))
    lost = next(each for each in brokers if each.urls["broker_url"] == owner)
    rest = [each for each in brokers if each is not lost]
    lost.end(signal.SIGKILL)
    brokers.remove(lost)
    began = time.perf_counter()
    took, now = _look_up([each.urls["http_url"] for each in rest], served[owner])
    while owner in now:
        # A broker believes for a second that one is there which it has just seen.
        more, again = _look_up([each.urls["http_url"] for each in rest], now.pop(owner))
        took += more
        now |= again
    print(
        f"  one is killed: its {len(served[owner]):,} topics have a new owner after"
        f" {time.perf_counter() - began:.1f} s; a look-up {_told(took)}, at most {max(took):.0f} ms",
        flush=True,
    )
    chance = random.Random(options.seed)
    opened = _publish(rest, chance.sample(served[owner], min(options.opened, len(served[owner]))))
    print(f"  first message of {len(opened)} of them, one after the other: {_told(opened)}", flush=True)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--metadata", required=True, help="URL of a metadata service without a cluster")
    parser.add_argument("--cluster", default="standalone", help="name of the cluster (standalone)")
    parser.add_argument("--topics", type=int, nargs="+", default=[10_000, 100_000], help="numbers of topics")
    parser.add_argument("--brokers", type=int, default=4, help="brokers of the cluster (4)")
    parser.add_argument("--looked-up", type=int, default=2_000, help="topics that are looked up (2000)")
    parser.add_argument("--opened", type=int, default=200, help="topics that get a message (200)")
    parser.add_argument("--failed-over", type=int, default=100_000, help="most topics of the kill (100000)")
    parser.add_argument("--seed", type=int, default=1, help="which topics are taken (1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-scale-") as name:
        folder = Path(name)
        print(" · ".join(map(str, machine.describe(folder).values())), flush=True)
        members: list[_Member] = []
        brokers: list[_Member] = []
        try:
            members.extend(_bookie(folder, options.metadata, number) for number in range(2))
            # One by one: those that started are ended when another one does not.
            brokers.extend(_broker(folder, options.metadata, next(_NUMBERS)) for _ in range(options.brokers))
            _measure(folder, options, brokers)
            _fail_over(options, brokers)
        finally:
            for member in (*brokers, *members):
                member.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
