"""Measures what this broker has to do, in all and by bundle, between two reports."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.bundle_load import BundleLoad
from magnetar.broker.ownership.records import BUNDLES_TOLD_MAX, Load
from magnetar.observability.process import resident_bytes, waited_s
from magnetar.runtime.tasks import SingleFlight, in_slices

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.topic.any_topic import AnyTopic

_TOPICS_PER_TURN: Final = 200
"""Topics that are counted before the event loop gets a turn: about a millisecond."""
_MIB: Final = 1 << 20


class Used(NamedTuple):
    """What the process has used of the machine since its start."""

    cpu_s: float
    waited_s: float
    """See `process.waited_s`."""
    resident_bytes: int
    """At present."""


def of_this_process() -> Used:
    """Of this process, as the system tells it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Used(used.ru_utime + used.ru_stime, waited_s(), resident_bytes())


class LoadMeter:
    """The load of one broker. Each reading begins where the last one ended."""

    def __init__(
        self,
        broker: BrokerPort,
        clock: Clock,
        bundle_of: Callable[[TopicName], Bundle | None],
        used: Callable[[], Used] = of_this_process,
    ) -> None:
        """`bundle_of`: the bundle of this broker that a topic falls into; None: it has none."""
        self.of_bundles: dict[Bundle, BundleLoad] = {}
        """All bundles with loaded topics, as of the last reading."""
        self.of_topics: dict[TopicName, float] = {}
        """Cost of the loaded topics, as of the last reading; see `BundleLoad.cost`."""
        self._broker = broker
        self._clock = clock
        self._bundle_of = bundle_of
        self._seen: dict[TopicName, tuple[int, int, int, int]] = {}
        self._used = used
        self._last = clock.monotonic_ms(), used()
        self._flights: SingleFlight[Load] = SingleFlight()

    async def read(self) -> Load:
        """The load since the last reading; takes turns with other work."""
        return await self._flights.run("load", self._read)

    async def _read(self) -> Load:
        now_ms, used = self._clock.monotonic_ms(), self._used()
        last_ms, before = self._last
        passed_s = max(0.001, (now_ms - last_ms) / 1000)
        seen: dict[TopicName, tuple[int, int, int, int]] = {}
        of_bundles: dict[Bundle, BundleLoad] = {}
        of_topics: dict[TopicName, float] = {}
        total = BundleLoad()
        topics = [*self._broker.topics.values(), *self._broker.nonpersistent.topics.values()]
        async for topic in in_slices(topics, _TOPICS_PER_TURN):
            counts = _counts(topic)
            load = _load(topic, counts, self._seen.get(topic.name, (0, 0, 0, 0)), passed_s)
            seen[topic.name] = counts
            of_topics[topic.name] = load.cost
            total = total.plus(load)
            bundle = self._bundle_of(topic.name)
            if bundle is not None:
                of_bundles[bundle] = of_bundles[bundle].plus(load) if bundle in of_bundles else load
        self._seen, self.of_bundles, self.of_topics = seen, of_bundles, of_topics
        cpu_percent = 100 * (used.cpu_s - before.cpu_s) / passed_s
        waited_percent = 100 * max(0.0, used.waited_s - before.waited_s) / passed_s
        self._last = now_ms, used
        in_use = {bundle: load for bundle, load in of_bundles.items() if load.in_use}
        most = sorted(in_use, key=lambda bundle: (-in_use[bundle].cost, bundle))[:BUNDLES_TOLD_MAX]
        return Load(
            topics=total.topics,
            producers=total.producers,
            consumers=total.consumers,
            rate_in=total.rate_in,
            rate_out=total.rate_out,
            bytes_in=total.bytes_in,
            bytes_out=total.bytes_out,
            cpu_percent=cpu_percent,
            waited_percent=waited_percent,
            memory_mib=used.resident_bytes / _MIB,
            memory_limit_mib=_machine_mib(),
            of_bundles={bundle: in_use[bundle] for bundle in most},
        )


def _counts(topic: AnyTopic) -> tuple[int, int, int, int]:
    messages_out = bytes_out = 0
    for each in topic.subscriptions.values():
        messages_out += each.messages_out
        bytes_out += each.bytes_out
    return topic.messages_in, topic.bytes_in, messages_out, bytes_out


def _load(
    topic: AnyTopic, now: tuple[int, int, int, int], before: tuple[int, int, int, int], passed_s: float
) -> BundleLoad:
    # A topic that was loaded anew, or lost a subscription, counts from 0 again.
    grown = [max(0, after - earlier) / passed_s for after, earlier in zip(now, before, strict=True)]
    return BundleLoad(
        rate_in=grown[0],
        bytes_in=grown[1],
        rate_out=grown[2],
        bytes_out=grown[3],
        topics=1,
        producers=len(topic.producers),
        consumers=sum(len(each.consumers) for each in topic.subscriptions.values()),
    )


def _machine_mib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _MIB
