"""The topics of the tour: names, partitions, policies and the schemas that official clients see."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus

import pulsar
from pulsar.schema import Boolean, Double, Integer, JsonSchema, Long, Record, Schema, String

from magnetar.adminclient import paths
from magnetar.adminclient.admin import Admin
from magnetar.adminclient.errors import AdminRefusedError
from magnetar.adminclient.target import AdminTarget
from magnetar.demo.errors import DemoError
from magnetar.demo.events import DEPARTURES, WEATHER

RESULTS = "delays-by-hour"
ALERTS = "alerts"
DEAD_LETTERS = "dead-letters"

PARTITIONS = {DEPARTURES: 2, WEATHER: 2, RESULTS: 2, ALERTS: 2, DEAD_LETTERS: 1}
"""Partitions per topic. Few, because the tour is sized for two cores."""


class Departure(Record):  # type: ignore[misc]  # pulsar ships no types
    """A departure as the tower reports it; cancelled ones have no delay."""

    flight_id = Long()
    carrier = String()
    flight = Integer()
    tailnum = String()
    origin = String()
    dest = String()
    distance_mi = Integer()
    sched_ms = Long()
    event_ms = Long()
    arrival_ms = Long()
    cancelled = Boolean()
    delay_min = Integer()
    route_seq = Integer()


class Observation(Record):  # type: ignore[misc]  # pulsar ships no types
    """The hourly report of a weather station, in hundredths of the usual units."""

    station = String()
    event_ms = Long()
    arrival_ms = Long()
    temp_f_x100 = Integer()
    wind_mph_x100 = Integer()
    visib_mi_x100 = Integer()
    precip_in_x100 = Integer()


class Alert(Record):  # type: ignore[misc]  # pulsar ships no types
    """A large delay, with the place it concerns; the place is null where the airport is unknown."""

    flight_id = Long()
    carrier = String()
    flight = Integer()
    origin = String()
    dest = String()
    dest_name = String()
    dest_lat = Double()
    dest_lon = Double()
    event_ms = Long()
    delay_min = Integer()
    route_seq = Integer()


SCHEMAS: dict[str, type[object]] = {DEPARTURES: Departure, WEATHER: Observation, ALERTS: Alert}


class Encoded(Schema):  # type: ignore[misc]  # pulsar ships no types
    """Registers a JSON schema for payloads that are encoded already.

    The client's own encoder walks a record object per message; at hundreds of thousands of events that, not
    the broker, would set the pace.
    """

    def __init__(self, record: type[object]) -> None:
        self._inner = JsonSchema(record)

    def encode(self, obj: bytes) -> bytes:
        return obj

    def decode(self, data: bytes) -> object:
        return self._inner.decode(data)

    def schema_info(self) -> object:
        return self._inner.schema_info()

    def definition(self) -> str:
        """The schema as Avro's JSON."""
        return str(self._inner.schema_info().schema())


class NotInEffectError(DemoError):
    """A policy that the tour needs did not take effect in time."""


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """Where the tour's broker listens, and the namespace it uses."""

    broker_url: str
    http_url: str
    namespace: str = "public/tour"

    def topic(self, name: str) -> str:
        """The full name of one of the tour's topics."""
        return f"persistent://{self.namespace}/{name}"

    def prepare(self) -> None:
        """Create namespace and topics, with deduplication on; raises AdminCallError,
        NotInEffectError.
        """
        with Admin(AdminTarget(url=self.http_url, timeout_s=15)) as admin:
            namespace = paths.namespace(self.namespace)
            try:
                admin.call("PUT", namespace, {})
            except AdminRefusedError as error:
                if error.status != HTTPStatus.CONFLICT:  # It may be there from an earlier tour.
                    raise
            admin.call("POST", f"{namespace}/deduplication", True)
            self._await_deduplication(admin, timeout_s=10)
            for name, count in PARTITIONS.items():
                admin.call("PUT", f"{paths.topic(self.topic(name))}/partitions", count)
        self._open_topics()

    def _open_topics(self) -> None:
        """Register the schemas, and open every partition, so that readers find them before the first
        message.
        """
        client = pulsar.Client(self.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            for name in PARTITIONS:
                schema = {"schema": JsonSchema(SCHEMAS[name])} if name in SCHEMAS else {}
                client.create_producer(self.topic(name), **schema)
        finally:
            client.close()

    def _await_deduplication(self, admin: Admin, *, timeout_s: float) -> None:
        """Policies may take effect a moment after the call; topics made before that would miss it."""
        deadline = time.monotonic() + timeout_s
        while admin.call("GET", f"{paths.namespace(self.namespace)}/deduplication") is not True:
            if time.monotonic() > deadline:
                raise NotInEffectError(
                    f"deduplication of {self.namespace} did not take effect within {timeout_s:.0f} s"
                )
            time.sleep(0.05)
