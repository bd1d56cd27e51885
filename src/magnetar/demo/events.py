"""From tables to events: what each producer will publish, in which order, byte for byte.

A *feed* is what one producer sends to one topic: the control tower of an airport sends departures keyed by
route, its weather station sends observations keyed by station. A feed is sorted by arrival, so for punctual
events by event time; a late event stands where it arrives. `route_seq` numbers the departures of a route in
that order, which is what a consumer needs to check the order of a key.

Payloads are JSON with whole numbers only (hundredths where the source has fractions), so that three
independent computations can agree to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from magnetar.demo.data import Dataset
from magnetar.demo.scenario import FLIGHTS_SALT, MINUTE_MS, WEATHER_SALT, Scenario, lateness_ms

DEPARTURES = "departures"
WEATHER = "weather"


@dataclass(frozen=True, slots=True)
class Feed:
    """What one producer publishes to one topic, sorted by arrival. The lists are parallel."""

    topic: str
    """Short name of the topic: `DEPARTURES` or `WEATHER`."""
    producer: str
    keys: list[str]
    event_ms: list[int]
    arrival_ms: list[int]
    payloads: list[bytes]

    def __len__(self) -> int:
        return len(self.payloads)

    def late(self) -> int:
        """How many events arrive later than they happened."""
        return sum(arrival > event for arrival, event in zip(self.arrival_ms, self.event_ms, strict=True))


def epoch_ms(time_hour: pd.Series) -> npt.NDArray[np.int64]:
    """UTC milliseconds of the ISO 8601 hours in the source files."""
    hours = pd.to_datetime(time_hour, utc=True).dt.tz_localize(None)
    stamps: npt.NDArray[np.int64] = hours.to_numpy().astype("datetime64[ms]").astype(np.int64)
    return stamps


def departures(data: Dataset, scenario: Scenario) -> list[Feed]:
    """One feed per airport of origin: event time is the actual departure, for cancelled flights the
    scheduled one.
    """
    flights = data.flights
    delay = flights["dep_delay"].to_numpy()
    cancelled = np.isnan(delay)
    delay_min = np.where(cancelled, 0, delay).astype(np.int64)
    sched_ms = epoch_ms(flights["time_hour"]) + flights["minute"].to_numpy() * MINUTE_MS
    event_ms = sched_ms + delay_min * MINUTE_MS
    arrival_ms = event_ms + lateness_ms(scenario, len(flights), FLIGHTS_SALT)
    order = np.argsort(arrival_ms, kind="stable")

    def column(values: object) -> list[object]:
        ordered: list[object] = np.asarray(values)[order].tolist()
        return ordered

    feeds = _feeds(DEPARTURES, "tower", flights["origin"])
    route_seq: dict[str, int] = {}
    for flight_id, carrier, flight, tail, origin, dest, miles, sched, event, arrival, gone, minutes in zip(
        column(flights.index),
        column(flights["carrier"]),
        column(flights["flight"]),
        column(flights["tailnum"].fillna("")),
        column(flights["origin"]),
        column(flights["dest"]),
        column(flights["distance"]),
        column(sched_ms),
        column(event_ms),
        column(arrival_ms),
        column(cancelled),
        column(delay_min),
        strict=True,
    ):
        route = f"{origin}-{dest}"
        seq = route_seq[route] = route_seq.get(route, 0) + 1
        tailnum = f'"{tail}"' if tail else "null"
        payload = (
            f'{{"flight_id":{flight_id},"carrier":"{carrier}","flight":{flight},"tailnum":{tailnum},'
            f'"origin":"{origin}","dest":"{dest}","distance_mi":{miles},"sched_ms":{sched},'
            f'"event_ms":{event},"arrival_ms":{arrival},"cancelled":{"true" if gone else "false"},'
            f'"delay_min":{"null" if gone else minutes},"route_seq":{seq}}}'
        )
        _append(feeds[origin], route, event, arrival, payload)
    return list(feeds.values())


def observations(data: Dataset, scenario: Scenario) -> list[Feed]:
    """One feed per weather station: one observation an hour, at the full hour."""
    weather = data.weather
    event_ms = epoch_ms(weather["time_hour"])
    arrival_ms = event_ms + lateness_ms(scenario, len(weather), WEATHER_SALT)
    order = np.argsort(arrival_ms, kind="stable")

    def hundredths(name: str) -> list[str]:
        values = np.rint(weather[name].to_numpy() * 100)[order].tolist()
        return ["null" if value != value else str(int(value)) for value in values]

    feeds = _feeds(WEATHER, "station", weather["origin"])
    for station, event, arrival, temp, wind, visib, precip in zip(
        weather["origin"].to_numpy()[order].tolist(),
        event_ms[order].tolist(),
        arrival_ms[order].tolist(),
        hundredths("temp"),
        hundredths("wind_speed"),
        hundredths("visib"),
        hundredths("precip"),
        strict=True,
    ):
        payload = (
            f'{{"station":"{station}","event_ms":{event},"arrival_ms":{arrival},"temp_f_x100":{temp},'
            f'"wind_mph_x100":{wind},"visib_mi_x100":{visib},"precip_in_x100":{precip}}}'
        )
        _append(feeds[station], station, event, arrival, payload)
    return list(feeds.values())


def _feeds(topic: str, role: str, places: pd.Series) -> dict[str, Feed]:
    return {place: Feed(topic, f"{role}-{place}", [], [], [], []) for place in sorted(places.unique())}


def _append(feed: Feed, key: str, event_ms: int, arrival_ms: int, payload: str) -> None:
    feed.keys.append(key)
    feed.event_ms.append(event_ms)
    feed.arrival_ms.append(arrival_ms)
    feed.payloads.append(payload.encode())
