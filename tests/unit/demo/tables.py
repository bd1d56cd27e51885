"""Small tables in the shape of the published ones."""

from __future__ import annotations

import pandas as pd

from magnetar.demo.data import Dataset

NAN = float("nan")


def small() -> Dataset:
    """Four departures of two carriers around 10:00 UTC, one cancelled; one hour without weather."""
    flights = pd.DataFrame(
        {
            "month": 1,
            "dep_delay": [-5.0, 130.0, NAN, 20.0],
            "carrier": ["UA", "UA", "B6", "UA"],
            "flight": [1, 2, 3, 4],
            "tailnum": ["N1", None, "N3", "N1"],
            "origin": ["EWR", "EWR", "JFK", "EWR"],
            "dest": ["LAX", "LAX", "XXX", "BOS"],
            "distance": [2454, 2454, 100, 200],
            "minute": [10, 0, 30, 15],
            "time_hour": ["2013-01-01T10:00:00Z"] * 4,
        },
        index=[7, 8, 9, 10],
    )
    weather = pd.DataFrame(
        {
            "month": 1,
            "origin": ["EWR", "JFK"],
            "temp": [39.02, NAN],
            "wind_speed": [10.357019999999999, NAN],
            "precip": [0.01, 0.0],
            "visib": [2.5, 10.0],
            "time_hour": ["2013-01-01T10:00:00Z"] * 2,
        }
    )
    planes = pd.DataFrame({"tailnum": ["N1"], "seats": [100]})
    airports = pd.DataFrame(
        {
            "faa": ["LAX", "BOS"],
            "name": ["Los Angeles", "Boston"],
            "lat": [33.9, 42.4],
            "lon": [-118.4, -71.0],
        }
    )
    return Dataset(flights, weather, planes, airports)


def many(count: int) -> Dataset:
    """`count` departures a minute apart on two routes, and as many hourly observations."""
    hours = pd.date_range("2013-01-01", periods=count // 60 + 1, freq="h").strftime("%Y-%m-%dT%H:%M:%SZ")
    base = small()
    flights = pd.DataFrame(
        {
            "month": 1,
            "dep_delay": 0.0,
            "carrier": "UA",
            "flight": range(count),
            "tailnum": "N1",
            "origin": ["EWR", "JFK"] * (count // 2),
            "dest": "LAX",
            "distance": 2454,
            "minute": [number % 60 for number in range(count)],
            "time_hour": [hours[number // 60] for number in range(count)],
        }
    )
    weather = pd.DataFrame(
        {
            "month": 1,
            "origin": "EWR",
            "temp": 40.0,
            "wind_speed": 5.0,
            "precip": 0.0,
            "visib": 10.0,
            "time_hour": hours,
        }
    )
    return Dataset(flights, weather, base.planes, base.airports)
