"""Consumers of the official client that share the alerts by key, and the proof that they saw them in order.

Each consumer counts how far the sequence of a route has come. Key_Shared promises that a route stays with
one consumer and keeps its order; a step back or a route at two consumers is kept as evidence.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pulsar
from pulsar.schema import JsonSchema

from magnetar.demo.topics import ALERTS, Alert, DemoCluster
from magnetar.runtime.threads import beside

SUBSCRIPTION = "dispatchers"


@dataclass(slots=True)
class SeenAlert:
    """What one consumer received; written by its thread only."""

    consumer: str
    flight_ids: list[int] = field(default_factory=list)
    last_seq: dict[str, int] = field(default_factory=dict)
    disordered: list[tuple[str, int, int]] = field(default_factory=list)
    """(route, sequence before, sequence received) where the sequence did not rise."""
    places: dict[str, tuple[float, float, int, int]] = field(default_factory=dict)
    """Per destination with known place: latitude, longitude (degrees), alerts, minutes of delay."""
    wrong_keys: int = 0

    def note(self, key: str, alert: Alert) -> None:
        """Record one alert, given the key it was routed by."""
        route = f"{alert.origin}-{alert.dest}"
        self.wrong_keys += key != route
        last = self.last_seq.get(route, 0)
        if alert.route_seq <= last:
            self.disordered.append((route, last, alert.route_seq))
        self.last_seq[route] = alert.route_seq
        self.flight_ids.append(alert.flight_id)
        if alert.dest_lat is not None and alert.dest_lon is not None:
            _, _, count, minutes = self.places.get(alert.dest, (0.0, 0.0, 0, 0))
            self.places[alert.dest] = (alert.dest_lat, alert.dest_lon, count + 1, minutes + alert.delay_min)


@dataclass(frozen=True, slots=True)
class AlertVerdict:
    """What all consumers saw together, against the alerts that should exist."""

    received: int
    missing: set[int]
    unexpected: set[int]
    repeated: int
    disordered: list[tuple[str, int, int]]
    shared_routes: set[str]
    """Routes that more than one consumer saw."""
    wrong_keys: int
    per_consumer: dict[str, int]

    @property
    def ok(self) -> bool:
        """Everything once, in order, each route at one consumer."""
        return not (
            self.missing
            or self.unexpected
            or self.repeated
            or self.disordered
            or self.shared_routes
            or self.wrong_keys
        )


def judge(seen: list[SeenAlert], expected: set[int]) -> AlertVerdict:
    """Compare what the consumers saw with the flight ids that should have raised an alert."""
    ids = [flight_id for one in seen for flight_id in one.flight_ids]
    routes: dict[str, int] = {}
    for one in seen:
        for route in one.last_seq:
            routes[route] = routes.get(route, 0) + 1
    return AlertVerdict(
        received=len(ids),
        missing=expected - set(ids),
        unexpected=set(ids) - expected,
        repeated=len(ids) - len(set(ids)),
        disordered=[evidence for one in seen for evidence in one.disordered],
        shared_routes={route for route, consumers in routes.items() if consumers > 1},
        wrong_keys=sum(one.wrong_keys for one in seen),
        per_consumer={one.consumer: len(one.flight_ids) for one in seen},
    )


class Dispatchers:
    """`count` consumers on one Key_Shared subscription, each in a thread of its own."""

    def __init__(self, cluster: DemoCluster, count: int) -> None:
        self._stop = threading.Event()
        self._client = pulsar.Client(
            cluster.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self.seen = [SeenAlert(f"dispatcher-{number + 1}") for number in range(count)]
        self.failure: Exception | None = None
        try:
            # All subscribe before the first alert: a consumer that joins later takes over routes from the
            # others.
            consumers = [self._subscribe(cluster, one.consumer) for one in self.seen]
        except BaseException:
            self._client.close()
            raise
        self._threads = [
            beside(self._consume, consumer, one, name=one.consumer)
            for consumer, one in zip(consumers, self.seen, strict=True)
        ]

    def _subscribe(self, cluster: DemoCluster, name: str) -> object:
        return self._client.subscribe(
            cluster.topic(ALERTS),
            SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.KeyShared,
            initial_position=pulsar.InitialPosition.Earliest,
            schema=JsonSchema(Alert),
            consumer_name=name,
        )

    @property
    def received(self) -> int:
        """Alerts received by all consumers so far."""
        return sum(len(one.flight_ids) for one in self.seen)

    def wait_for(self, count: int, stop: threading.Event, *, quiet_s: float) -> None:
        """Return when `count` alerts have arrived, `stop` is set, or nothing new came for `quiet_s`
        seconds.
        """
        last, since = self.received, time.monotonic()
        while self.received < count and not stop.wait(0.05) and self.failure is None:
            if self.received != last:
                last, since = self.received, time.monotonic()
            elif time.monotonic() - since > quiet_s:
                return

    def close(self) -> None:
        """Stop the threads and disconnect; acknowledged alerts stay acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)
        self._client.close()

    def _consume(self, consumer: pulsar.Consumer, seen: SeenAlert) -> None:
        try:
            while not self._stop.is_set():
                try:
                    message = consumer.receive(timeout_millis=200)
                except pulsar.Timeout:  # no message yet: the loop looks whether it is to stop
                    continue
                seen.note(message.partition_key(), message.value())
                consumer.acknowledge(message)
        except pulsar.PulsarException as error:
            if not self._stop.is_set():
                self.failure = error
