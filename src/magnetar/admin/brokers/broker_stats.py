"""`/admin/v2/broker-stats`: statistics of the whole broker."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Final

from magnetar.admin.brokers.brokers import broker_id, broker_port
from magnetar.admin.calls.call import Call, Raw, Route, as_json
from magnetar.admin.calls.errors import NotImplementedHereError
from magnetar.admin.topics.stats import asked, topic_stats
from magnetar.broker.policies.bundles import bundle_of
from magnetar.observability.process import resident_bytes
from magnetar.runtime.tasks import in_slices

_B: Final = "/admin/v2/broker-stats"
_TOPICS_PER_TURN: Final = 50
"""Topics whose statistics are made before the event loop gets a turn; 50 µs each."""
_SUMMED_PER_TURN: Final = 1_000
"""Topics that are counted before the event loop gets a turn; 2 µs each."""


async def topics(call: Call) -> object:
    """Statistics of all loaded persistent topics, by namespace and bundle; made and encoded in turns."""
    found: dict[str, dict[str, list[bytes]]] = {}
    wanted = asked(call)
    async for topic in in_slices(list(call.broker.topics.values()), _TOPICS_PER_TURN):
        namespace = topic.name.namespace_name
        bundle = bundle_of(topic.name, await call.broker.policies.namespace(namespace))
        texts = found.setdefault(str(namespace), {}).setdefault(bundle, [])
        texts.append(f"{as_json(str(topic.name))}:{as_json(topic_stats(topic, wanted))}".encode())
    return Raw(b"".join(_pieces(found)), "application/json")


def _pieces(found: dict[str, dict[str, list[bytes]]]) -> Iterator[bytes]:
    """The document in pieces; its innermost fields are JSON already, megabytes that are copied once."""
    for number, (namespace, bundles) in enumerate(found.items()):
        yield f"{',' if number else '{'}{as_json(namespace)}:".encode()
        for position, (bundle, texts) in enumerate(bundles.items()):
            yield f'{"," if position else "{"}{as_json(bundle)}:{{"persistent":{{'.encode()
            for at, text in enumerate(texts):
                if at:
                    yield b","
                yield text
            yield b"}}"
        yield b"}"
    yield b"}" if found else b"{}"


async def _sums(call: Call) -> dict[str, int]:
    sums = dict.fromkeys(("topics", "producers", "consumers", "subscriptions", "messages_in", "bytes_in"), 0)
    async for topic in in_slices(list(call.broker.topics.values()), _SUMMED_PER_TURN):
        sums["topics"] += 1
        sums["producers"] += len(topic.producers)
        sums["consumers"] += sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
        sums["subscriptions"] += len(topic.subscriptions)
        sums["messages_in"] += topic.messages_in
        sums["bytes_in"] += topic.bytes_in
    return sums


async def metrics(call: Call) -> object:
    """A few sums; `/metrics` has all metrics."""
    sums = await _sums(call)
    return [
        {
            "metrics": {
                "brk_topics_count": sums["topics"],
                "brk_producers_count": sums["producers"],
                "brk_consumers_count": sums["consumers"],
                "brk_subscriptions_count": sums["subscriptions"],
                "brk_connections_count": len(call.broker.sessions),
                "brk_in_messages_total": sums["messages_in"],
                "brk_in_bytes_total": sums["bytes_in"],
            },
            "dimensions": {"cluster": call.broker.config.cluster, "broker": await broker_id(call)},
        }
    ]


async def mbeans(call: Call) -> object:
    """An empty list: only Java processes have MBeans."""
    return []


async def load_report(call: Call) -> object:
    """The load of this broker; of one of several, as it has told the others."""
    owners = call.broker.owners
    if owners is not None and owners.reporting.last is not None:
        return Raw(owners.reporting.last.encode(), "application/json")
    own, port, sums = await broker_id(call), await broker_port(call), await _sums(call)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = max(0.001, call.broker.clock_watch.running_s)
    return {
        # Pulsar's client chooses by this how to read the rest.
        "loadReportType": "LocalBrokerData",
        "webServiceUrl": f"http://{own}",
        "pulsarServiceUrl": f"pulsar://{own.rpartition(':')[0]}:{port}",
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "startTimestamp": call.broker.started_ms,
        "cpu": {"usage": 100 * (usage.ru_utime + usage.ru_stime) / seconds, "limit": 100.0},
        "memory": {"usage": resident_bytes() / (1 << 20), "limit": 0.0},
        "numTopics": sums["topics"],
        "numConsumers": sums["consumers"],
        "numProducers": sums["producers"],
    }


async def not_java(call: Call) -> object:
    """Refused: it concerns the memory of a Java process."""
    raise NotImplementedHereError("this broker has none of Java's allocators and queues: see /metrics")


ROUTES: list[Route] = [
    ("GET", f"{_B}/metrics", metrics),
    ("GET", f"{_B}/mbeans", mbeans),
    ("GET", f"{_B}/topics", topics),
    ("GET", f"{_B}/destinations", topics),
    ("GET", f"{_B}/load-report", load_report),
    ("GET", f"{_B}/allocator-stats/{{allocator}}", not_java),
    ("GET", f"{_B}/bookieops", not_java),
    ("GET", f"{_B}/broker-resource-availability/{{tenant}}/{{namespace}}", not_java),
]
