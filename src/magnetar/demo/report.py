"""The results of a run: the summary as JSON, the table of the worst hours, and the chart."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

import pandas as pd
from rich.table import Table

from magnetar.demo.alerts import SeenAlert

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

NEW_YORK = ZoneInfo("America/New_York")
STRONG_WIND_MPH = 20
"""From this mean wind on, the table of the worst hours mentions it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a run; the field names are the keys of the JSON file."""

    rows: dict[str, int]
    """Rows (hour and carrier) found by `stream`, `batch`, `independent`, and in `parquet`."""
    agree: bool
    """Whether all of them are equal, row by row and value by value, and all other checks passed."""
    failures: list[str]
    """The failed checks, in words; empty when all passed."""
    published: int
    duplicates_sent: int
    duplicates_removed: int
    late_rows: int
    """Events that arrived later than they happened; those within the allowance landed in their window."""
    dead_letters: int
    """Late events beyond the allowance."""
    dropped_by_watermark: int
    lost: int
    """Published events that the topics do not hold."""
    alerts: dict[str, object]
    publish_msgs_per_s: float
    stream_rows_per_s: float
    batch_s: float
    broker_cpu_s: float | None
    duration_s: float
    quick: bool
    out: str
    parquet: str
    chart: str

    def write(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def by_hour(results: pd.DataFrame) -> pd.DataFrame:
    """All carriers together, one row per hour, the most minutes of delay first."""
    sums = [
        "no_weather",
        "wind_mph_x100_sum",
        "flights",
        "cancelled",
        "departed",
        "delay_sum_min",
        "late_15",
        "seat_delay_min",
        "low_visibility",
        "wet",
    ]
    hours = results.groupby("hour_ms")[sums].sum()
    hours["delay_max_min"] = results.groupby("hour_ms")["delay_max_min"].max()
    return hours.reset_index().sort_values(["delay_sum_min", "hour_ms"], ascending=[False, True])


def worst_hours(results: pd.DataFrame, count: int = 8) -> Table:
    """The `count` hours with the most minutes of delay, in New York time."""
    table = Table(title="The worst hours: delays on departure", title_justify="left")
    table.add_column("New York", no_wrap=True)
    for name in ("Flights", "Not flown", "Mean", "Longest", "Seat-hours"):
        table.add_column(name, justify="right")
    table.add_column("Weather")
    for row in by_hour(results).head(count).itertuples():
        stamp = pd.Timestamp(row.hour_ms, unit="ms", tz="UTC").tz_convert(NEW_YORK)
        table.add_row(
            stamp.strftime("%d %b %H:00"),
            str(row.flights),
            str(row.cancelled),
            f"{row.delay_sum_min / row.departed:.0f} min" if row.departed else "-",
            f"{row.delay_max_min} min",
            f"{row.seat_delay_min / 60:,.0f}",
            _weather(row),
        )
    return table


class _Hour(Protocol):
    """The part of a row of `by_hour` that tells the weather: flights of the hour, and what was observed."""

    flights: int
    no_weather: int
    wet: int
    low_visibility: int
    wind_mph_x100_sum: int


def _weather(row: _Hour) -> str:
    observed = row.flights - row.no_weather
    if not observed:
        return "unknown"
    wind_mph = row.wind_mph_x100_sum / observed / 100
    words = [
        word
        for word, present in (
            ("rain", row.wet),
            ("low cloud", row.low_visibility),
            (f"wind {wind_mph:.0f} mph", wind_mph >= STRONG_WIND_MPH),
        )
        if present
    ]
    return ", ".join(words) or "fair"


def draw_chart(results: pd.DataFrame, seen: list[SeenAlert], path: Path) -> None:
    """Mean delay by hour of day and month, and the destinations of alerts on a map, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    hours = by_hour(results)
    local = pd.to_datetime(hours["hour_ms"].astype("int64"), unit="ms", utc=True).dt.tz_convert(NEW_YORK)
    grouped = hours.assign(hour=local.dt.hour, month=local.dt.month).groupby(["hour", "month"])
    minutes = grouped["delay_sum_min"].sum().astype("float")
    mean = (minutes / grouped["departed"].sum().astype("float")).unstack()
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5.5), width_ratios=(2, 3), layout="constrained")
    image = left.imshow(mean.to_numpy(), aspect="auto", origin="lower", cmap="magma", vmin=0, vmax=60)
    left.set_xticks(
        range(len(mean.columns)), [pd.Timestamp(2013, month, 1).strftime("%b") for month in mean.columns]
    )
    left.set_yticks(range(0, len(mean.index), 3), [f"{hour:02}:00" for hour in mean.index[::3]])
    left.set_title("Mean departure delay, minutes")
    figure.colorbar(image, ax=left)
    places = _places(seen)
    if places:
        latitudes, longitudes, counts, delays = zip(*places.values(), strict=True)
        dots = right.scatter(
            longitudes,
            latitudes,
            s=[8 + 3 * count**0.8 for count in counts],
            c=[minutes / count for minutes, count in zip(delays, counts, strict=True)],
            cmap="magma",
            alpha=0.8,
            edgecolors="black",
            linewidths=0.4,
        )
        figure.colorbar(dots, ax=right, label="mean minutes")
        # The axes need their final size before labels are placed.
        figure.canvas.draw()
        _label(right, places)
    right.set_title("Departures two hours late or more, by destination")
    right.set_xlabel("longitude")
    right.set_ylabel("latitude")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _label(axes: Axes, places: dict[str, tuple[float, float, int, int]], count: int = 12) -> None:
    """Names of the `count` places with the most alerts, each where it covers no other name, or not at all."""
    taken: list[Bbox] = []
    for name, (latitude, longitude, _, _) in sorted(places.items(), key=lambda item: -item[1][2])[:count]:
        for right, above in ((5, 4), (5, -11), (-24, 4), (-24, -11), (-9, 9), (-9, -17)):
            note = axes.annotate(
                name, (longitude, latitude), xytext=(right, above), textcoords="offset points", fontsize=8
            )
            box = note.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def _places(seen: list[SeenAlert]) -> dict[str, tuple[float, float, int, int]]:
    places: dict[str, tuple[float, float, int, int]] = {}
    for one in seen:
        for name, (latitude, longitude, count, minutes) in one.places.items():
            _, _, count_before, minutes_before = places.get(name, (latitude, longitude, 0, 0))
            places[name] = (latitude, longitude, count + count_before, minutes + minutes_before)
    return places
