"""The script of the replay: ticks of the replay's clock, the retries in them, and the closing events.

Within a tick all producers send at once; the next tick starts when everything before it is acknowledged. So
the partitions of a topic are never further apart than a tick, which the scenario's `skew_ms` leaves room
for.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from magnetar.demo.data import Dataset
from magnetar.demo.events import DEPARTURES, WEATHER, Feed, departures, observations
from magnetar.demo.scenario import HOUR_MS, RETRIES_SALT, Scenario

RETRY_RUN = 24
"""Messages that one retry sends again: a producer that lost its connection repeats what was in flight."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """Events `start` to `stop` (exclusive) of `feed`; the last `retried` of them are sent twice."""

    feed: Feed
    start: int
    stop: int
    retried: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The messages to send until `clock_ms` of the replay's clock."""

    clock_ms: int
    steps: list[ScriptStep]


@dataclass(frozen=True, slots=True)
class Script:
    """The whole replay."""

    feeds: list[Feed]
    ticks: list[Tick] = field(repr=False)
    first_ms: int
    last_ms: int
    """Latest event time of all events; every window that matters starts at or before it."""
    closing_ms: int
    """Event time of the closing events: so late that all windows up to `last_ms` close."""

    @property
    def unique(self) -> int:
        """Events to publish, closing events not counted."""
        return sum(len(feed) for feed in self.feeds)

    def events_of(self, topic: str) -> int:
        """Events to publish to one topic, its closing event not counted."""
        return sum(len(feed) for feed in self.feeds if feed.topic == topic)

    @property
    def retried(self) -> int:
        """Messages that are sent a second time."""
        return sum(step.retried for tick in self.ticks for step in tick.steps)

    @property
    def late(self) -> int:
        """Events that arrive later than they happened."""
        return sum(feed.late() for feed in self.feeds)


def write_script(data: Dataset, scenario: Scenario, *, tick_ms: int) -> Script:
    """Build all events and cut them into ticks of `tick_ms`."""
    feeds = departures(data, scenario) + observations(data, scenario)
    first_ms = min(feed.arrival_ms[0] for feed in feeds)
    end_ms = max(feed.arrival_ms[-1] for feed in feeds)
    last_ms = max(max(feed.event_ms) for feed in feeds)
    rng = np.random.default_rng([scenario.seed, RETRIES_SALT])
    ticks = []
    position = [0] * len(feeds)
    for clock_ms in range(first_ms + tick_ms, end_ms + tick_ms + 1, tick_ms):
        steps = []
        for index, feed in enumerate(feeds):
            start, stop = position[index], bisect_left(feed.arrival_ms, clock_ms, position[index])
            if stop > start:
                steps.append(ScriptStep(feed, start, stop, _retried(rng, stop - start, scenario.retry_share)))
            position[index] = stop
        if steps:
            ticks.append(Tick(clock_ms, steps))
    closing_ms = last_ms + scenario.watermark_delay_ms + 3 * HOUR_MS
    return Script(feeds, ticks, first_ms, last_ms, closing_ms)


def closing_event(topic: str, closing_ms: int) -> bytes:
    """The payload that ends `topic`; its negative id (empty station) keeps it out of every computation."""
    if topic == DEPARTURES:
        fields: dict[str, object] = {
            "flight_id": -1,
            "carrier": "",
            "flight": 0,
            "tailnum": None,
            "origin": "",
            "dest": "",
            "distance_mi": 0,
            "sched_ms": closing_ms,
            "event_ms": closing_ms,
            "arrival_ms": closing_ms,
            "cancelled": True,
            "delay_min": None,
            "route_seq": 0,
        }
    else:
        assert topic == WEATHER, topic
        fields = {
            "station": "",
            "event_ms": closing_ms,
            "arrival_ms": closing_ms,
            "temp_f_x100": None,
            "wind_mph_x100": None,
            "visib_mi_x100": 0,
            "precip_in_x100": 0,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def _retried(rng: np.random.Generator, sent: int, share: float) -> int:
    """How many of the last `sent` messages go out again, so that `share` of all messages do in the long
    run.
    """
    runs = int(rng.binomial(max(1, round(sent / RETRY_RUN)), share))
    return min(sent, runs * RETRY_RUN)
