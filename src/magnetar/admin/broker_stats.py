"""`/admin/v2/broker-stats`: statistics of the whole broker."""

from __future__ import annotations

import resource
from typing import Any, Final

from magnetar.admin.brokers import broker_id, broker_port
from magnetar.admin.bundles import bundle_of
from magnetar.admin.call import Call, Route
from magnetar.admin.errors import NotImplementedHereError
from magnetar.admin.stats import asked, topic_stats
from magnetar.observability.process import resident_bytes

_B: Final = "/admin/v2/broker-stats"


async def topics(call: Call) -> object:
    """Statistics of all loaded persistent topics, by namespace and bundle."""
    found: dict[str, Any] = {}
    for topic in list(call.broker.topics.values()):
        namespace = topic.name.namespace_name
        bundle = bundle_of(topic.name, await call.broker.policies.namespace(namespace))
        bundles = found.setdefault(str(namespace), {}).setdefault(bundle, {"persistent": {}})
        bundles["persistent"][str(topic.name)] = topic_stats(topic, asked(call))
    return found


def _sums(call: Call) -> dict[str, Any]:
    loaded = list(call.broker.topics.values())
    consumers = [sub.consumers for topic in loaded for sub in topic.subscriptions.values()]
    return {
        "topics": len(loaded),
        "producers": sum(len(topic.producers) for topic in loaded),
        "consumers": sum(map(len, consumers)),
        "subscriptions": len(consumers),
        "messages_in": sum(topic.messages_in for topic in loaded),
        "bytes_in": sum(topic.bytes_in for topic in loaded),
    }


async def metrics(call: Call) -> object:
    """A few sums; `/metrics` has everything."""
    sums = _sums(call)
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
    """None: they belong to a Java process."""
    return []


async def load_report(call: Call) -> object:
    """How busy this broker is."""
    own, port, sums = await broker_id(call), await broker_port(call), _sums(call)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = max(0.001, (call.broker.clock.now_ms() - call.broker.started_ms) / 1000)
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
    """Refused: about the memory of a Java process."""
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
