"""The independent computation, on tables small enough to add up by hand."""

from __future__ import annotations

import pandas as pd

from magnetar.demo import independent
from magnetar.demo.scenario import Scenario

from .tables import many, small

PUNCTUAL = Scenario(hours_late_share=0, days_late_share=0)
TEN = 1_357_034_400_000
"""2013-01-01 10:00 UTC in ms."""


def test_sums_by_hour_and_carrier() -> None:
    table = independent.hourly_delays(small(), PUNCTUAL).set_index(["hour_ms", "carrier"])
    assert list(table.index) == [(TEN, "B6"), (TEN, "UA"), (TEN + 2 * 3_600_000, "UA")]
    expected = {
        "flights": 2,
        "cancelled": 0,
        "departed": 2,
        "delay_sum_min": 15,
        "delay_max_min": 20,
        "late_15": 1,
        "west": 1,
        "unplaced": 0,
        "seat_delay_min": 2000,
        "no_weather": 0,
        "wind_mph_x100_sum": 2072,
        "low_visibility": 2,
        "wet": 2,
    }
    assert table.loc[(TEN, "UA")].to_dict() == expected
    cancelled = table.loc[(TEN, "B6")]
    assert (cancelled["cancelled"], cancelled["departed"], cancelled["unplaced"]) == (1, 0, 1)
    assert pd.isna(cancelled["delay_max_min"])
    assert table.loc[(TEN + 2 * 3_600_000, "UA"), "no_weather"] == 1


def test_alerts_are_the_large_delays() -> None:
    table = independent.alerts(small(), PUNCTUAL)
    assert table.to_dict("records") == [{"flight_id": 8, "route": "EWR-LAX", "delay_min": 130}]


def test_events_beyond_the_allowed_lateness_do_not_count() -> None:
    everyone = Scenario(days_late_share=1.0, hours_late_share=0)
    assert independent.too_late(small(), everyone) == (4, 2)
    assert independent.hourly_delays(small(), everyone).empty


def test_what_is_kept_and_what_is_too_late_add_up() -> None:
    data, scenario = many(6000), Scenario(days_late_share=0.1)
    flights, _ = independent.too_late(data, scenario)
    assert flights > 0
    assert independent.hourly_delays(data, scenario)["flights"].sum() + flights == 6000


def test_larger_allowance_lets_all_late_events_land() -> None:
    assert independent.too_late(many(6000), Scenario(allowed_lateness_ms=7 * 86_400_000)) == (0, 0)
