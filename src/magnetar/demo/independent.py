"""The same numbers a second way: pandas over the published tables, without topics, Spark or any pipeline
code.

Only the ground truth of the simulation is shared (`Scenario`, `lateness_ms`); rules are written down again
here, so that a mistake in the pipeline cannot agree with itself.
"""

from __future__ import annotations

import pandas as pd

from magnetar.demo.data import Dataset
from magnetar.demo.scenario import FLIGHTS_SALT, HOUR_MS, WEATHER_SALT, Scenario, lateness_ms


def hourly_delays(data: Dataset, scenario: Scenario) -> pd.DataFrame:
    """Delays by hour of departure and carrier, one row each, sorted by both."""
    flights = _flights(data, scenario)
    flights = flights[flights["kept"]]
    stations = data.weather.assign(
        hour_ms=pd.to_datetime(data.weather["time_hour"], utc=True)
        .astype("datetime64[ms, UTC]")
        .astype("int64"),
        kept=lateness_ms(scenario, len(data.weather), WEATHER_SALT) <= scenario.allowed_lateness_ms,
    )
    stations = stations.loc[stations["kept"], ["origin", "hour_ms", "wind_speed", "visib", "precip"]]
    places = data.airports.rename(columns={"faa": "dest"})
    rows = flights.merge(stations, how="left", on=["origin", "hour_ms"], validate="many_to_one")
    rows = rows.merge(places, how="left", on="dest", validate="many_to_one")
    rows = rows.merge(data.planes, how="left", on="tailnum", validate="many_to_one")
    minutes = rows["dep_delay"].fillna(0)
    rows = rows.assign(
        flights=1,
        cancelled=rows["dep_delay"].isna(),
        departed=rows["dep_delay"].notna(),
        minutes=minutes,
        late_15=rows["dep_delay"] >= 15,
        west=rows["lon"] < scenario.west_of_degrees,
        unplaced=rows["lon"].isna(),
        seat_minutes=minutes.clip(lower=0) * rows["seats"].fillna(0),
        no_weather=rows["visib"].isna(),
        wind=(rows["wind_speed"] * 100).round().fillna(0),
        low_visibility=rows["visib"] < 3,
        wet=rows["precip"] > 0,
    )
    table = (
        rows.groupby(["hour_ms", "carrier"], sort=True)
        .agg(
            flights=("flights", "sum"),
            cancelled=("cancelled", "sum"),
            departed=("departed", "sum"),
            delay_sum_min=("minutes", "sum"),
            delay_max_min=("dep_delay", "max"),
            late_15=("late_15", "sum"),
            west=("west", "sum"),
            unplaced=("unplaced", "sum"),
            seat_delay_min=("seat_minutes", "sum"),
            no_weather=("no_weather", "sum"),
            wind_mph_x100_sum=("wind", "sum"),
            low_visibility=("low_visibility", "sum"),
            wet=("wet", "sum"),
        )
        .reset_index()
    )
    return table.astype({name: "Int64" for name in table.columns if name != "carrier"})


def alerts(data: Dataset, scenario: Scenario) -> pd.DataFrame:
    """Departures that raise an alert: `flight_id`, `route`, `delay_min`."""
    flights = _flights(data, scenario)
    chosen = flights[flights["kept"] & (flights["dep_delay"] >= scenario.alert_delay_min)]
    return pd.DataFrame(
        {
            "flight_id": chosen.index.to_numpy(),
            "route": (chosen["origin"] + "-" + chosen["dest"]).to_numpy(),
            "delay_min": chosen["dep_delay"].astype("int64").to_numpy(),
        }
    )


def too_late(data: Dataset, scenario: Scenario) -> tuple[int, int]:
    """How many departures and how many observations arrive after the allowed lateness."""
    weather = lateness_ms(scenario, len(data.weather), WEATHER_SALT) > scenario.allowed_lateness_ms
    return int((~_flights(data, scenario)["kept"]).sum()), int(weather.sum())


def _flights(data: Dataset, scenario: Scenario) -> pd.DataFrame:
    """The flights with the hour they left in (`hour_ms`; the scheduled one when cancelled) and whether they
    count.
    """
    left = (
        pd.to_datetime(data.flights["time_hour"], utc=True)
        + pd.to_timedelta(data.flights["minute"], unit="min")
        + pd.to_timedelta(data.flights["dep_delay"].fillna(0), unit="min")
    )
    left_ms = left.astype("datetime64[ms, UTC]").astype("int64")
    return data.flights.assign(
        hour_ms=left_ms // HOUR_MS * HOUR_MS,
        kept=lateness_ms(scenario, len(data.flights), FLIGHTS_SALT) <= scenario.allowed_lateness_ms,
    )
