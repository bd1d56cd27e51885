"""The event generator: deterministic, in order of arrival, late and repeated in the stated shares."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from magnetar.demo.events import DEPARTURES, WEATHER, departures, observations
from magnetar.demo.scenario import DAY_MS, HOUR_MS, Scenario, lateness_ms
from magnetar.demo.script import closing_event, write_script
from magnetar.demo.topics import Alert, Departure, Observation

from .tables import many, small

PUNCTUAL = Scenario(hours_late_share=0, days_late_share=0, retry_share=0)


def test_two_runs_are_equal_in_every_byte() -> None:
    data = many(600)
    first, second = (write_script(data, Scenario(), tick_ms=HOUR_MS) for _ in range(2))
    assert first == second
    assert first != write_script(data, Scenario(seed=1), tick_ms=HOUR_MS)


def test_punctual_events_stand_in_event_time_order() -> None:
    for feed in departures(many(600), PUNCTUAL) + observations(many(600), PUNCTUAL):
        assert feed.event_ms == feed.arrival_ms == sorted(feed.event_ms)
        assert feed.late() == 0


def test_late_events_stand_where_they_arrive() -> None:
    for feed in departures(many(2000), Scenario()):
        assert feed.arrival_ms == sorted(feed.arrival_ms)
        assert feed.event_ms != sorted(feed.event_ms)


def test_lateness_has_the_stated_shares() -> None:
    late = lateness_ms(Scenario(), 100_000, salt=1)
    in_hours = ((late >= HOUR_MS) & (late <= 6 * HOUR_MS)).mean()
    in_days = ((late >= 36 * HOUR_MS) & (late <= 6 * DAY_MS)).mean()
    assert in_hours == pytest.approx(0.02, rel=0.1)
    assert in_days == pytest.approx(0.005, rel=0.1)
    assert in_hours + in_days + (late == 0).mean() == pytest.approx(1)


def test_kinds_of_events_are_late_independently() -> None:
    assert (lateness_ms(Scenario(), 1000, salt=1) != lateness_ms(Scenario(), 1000, salt=2)).any()


def test_departure_carries_the_recorded_facts() -> None:
    feeds = {feed.producer: feed for feed in departures(small(), PUNCTUAL)}
    events = [json.loads(payload) for payload in feeds["tower-EWR"].payloads]
    assert [event["flight_id"] for event in events] == [7, 10, 8]
    assert events[0]["event_ms"] - events[0]["sched_ms"] == -5 * 60_000
    assert events[2]["tailnum"] is None
    assert feeds["tower-EWR"].keys == ["EWR-LAX", "EWR-BOS", "EWR-LAX"]
    cancelled = json.loads(feeds["tower-JFK"].payloads[0])
    assert cancelled["cancelled"]
    assert cancelled["delay_min"] is None
    assert cancelled["event_ms"] == cancelled["sched_ms"]


def test_observation_is_in_whole_hundredths() -> None:
    feeds = {feed.producer: feed for feed in observations(small(), PUNCTUAL)}
    event = json.loads(feeds["station-EWR"].payloads[0])
    assert (event["temp_f_x100"], event["wind_mph_x100"], event["visib_mi_x100"]) == (3902, 1036, 250)
    assert json.loads(feeds["station-JFK"].payloads[0])["wind_mph_x100"] is None


def test_routes_are_numbered_in_order_of_arrival() -> None:
    seqs = defaultdict(list)
    for feed in departures(many(2000), Scenario()):
        for key, payload in zip(feed.keys, feed.payloads, strict=True):
            seqs[key].append(json.loads(payload)["route_seq"])
    assert seqs
    assert all(seq == list(range(1, len(seq) + 1)) for seq in seqs.values())


def test_ticks_cover_every_event_once_and_in_time() -> None:
    script = write_script(many(2000), Scenario(), tick_ms=HOUR_MS)
    reached: dict[str, int] = defaultdict(int)
    for tick in script.ticks:
        for step in tick.steps:
            assert step.start == reached[step.feed.producer]
            assert step.feed.arrival_ms[step.stop - 1] < tick.clock_ms
            assert 0 <= step.retried <= step.stop - step.start
            reached[step.feed.producer] = step.stop
    assert reached == {feed.producer: len(feed) for feed in script.feeds}


def test_retries_have_the_stated_share() -> None:
    script = write_script(many(20_000), Scenario(retry_share=0.2), tick_ms=6 * HOUR_MS)
    assert script.retried / script.unique == pytest.approx(0.2, rel=0.25)
    assert write_script(many(600), PUNCTUAL, tick_ms=HOUR_MS).retried == 0


def test_closing_event_closes_every_window() -> None:
    scenario = Scenario()
    script = write_script(many(600), scenario, tick_ms=HOUR_MS)
    assert script.closing_ms - scenario.watermark_delay_ms > script.last_ms + HOUR_MS
    for topic in (DEPARTURES, WEATHER):
        assert json.loads(closing_event(topic, script.closing_ms))["event_ms"] == script.closing_ms


def test_payloads_have_exactly_the_fields_of_their_schema() -> None:
    flights, weather = departures(small(), PUNCTUAL)[0], observations(small(), PUNCTUAL)[0]
    for record, payloads in (
        (Departure, [flights.payloads[0], closing_event(DEPARTURES, 1)]),
        (Observation, [weather.payloads[0], closing_event(WEATHER, 1)]),
    ):
        for payload in payloads:
            assert set(json.loads(payload)) == {field["name"] for field in record.schema()["fields"]}


def test_alert_schema_has_the_fields_of_the_pipeline() -> None:
    pipeline = pytest.importorskip("magnetar.demo.pipeline")
    fields = {field.split()[0] for field in pipeline.ALERT_FIELDS.split(", ")}
    assert fields == {field["name"] for field in Alert.schema()["fields"]}
