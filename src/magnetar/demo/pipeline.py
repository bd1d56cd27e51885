"""The pipeline: pure functions from DataFrame to DataFrame, used by the stream and by the batch alike.

```
departures ─ parse ─ kept ─ place (airports, planes) ─┐
                                                      ├─ left join on origin and hour ─ by carrier and hour
weather ──── parse ─ kept ────────────────────────────┘
departures ─ parse ─ kept ─ large delays ─ alerts
both ─────── parse ─ too late ─ dead letters
```

Raw rows are those of the data source: `value` and `key` (binary), `key_is_string`, `topic`, and more. In a
batch `withWatermark` does nothing, so both plans run the same operators over the same columns. The
functions hold no state and read nothing but their arguments.

Rules, all decided on the event itself and never on when the engine happens to see it:

- an event is *kept* when arrival minus event time is at most the allowed lateness, otherwise it is a dead
  letter;
- a departure counts in the hour it left, a cancelled one in the hour it was scheduled for;
- a departure without an observation for its hour still counts, as `no_weather` (left join).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every PySpark user knows

from magnetar.demo.scenario import HOUR_MS, Scenario

DEPARTURE_FIELDS = (
    "flight_id bigint, carrier string, flight int, tailnum string, origin string, dest string, "
    "distance_mi int, sched_ms bigint, event_ms bigint, arrival_ms bigint, cancelled boolean, "
    "delay_min int, route_seq int"
)
OBSERVATION_FIELDS = (
    "station string, event_ms bigint, arrival_ms bigint, temp_f_x100 int, wind_mph_x100 int, "
    "visib_mi_x100 int, precip_in_x100 int"
)
RESULT_FIELDS = (
    "hour_ms bigint, carrier string, flights bigint, cancelled bigint, departed bigint, "
    "delay_sum_min bigint, delay_max_min int, late_15 bigint, west bigint, unplaced bigint, "
    "seat_delay_min bigint, no_weather bigint, wind_mph_x100_sum bigint, low_visibility bigint, wet bigint"
)
ALERT_FIELDS = (
    "flight_id bigint, carrier string, flight int, origin string, dest string, dest_name string, "
    "dest_lat double, dest_lon double, event_ms bigint, delay_min int, route_seq int"
)

RAW_COLUMNS = ("key", "key_is_string", "value", "topic")
"""What the pipeline reads of a topic."""
LATENESS_FIELDS = "event_ms bigint, arrival_ms bigint"
"""What deciding on lateness takes, of either topic."""

LATE_MIN = 15
"""From this delay (minutes) on a departure counts as late; the figure airlines report."""
LOW_VISIBILITY_MI_X100 = 300
"""Below this visibility (hundredths of a mile) pilots fly by instruments: 3 miles."""


def parse(raw: DataFrame, fields: str) -> DataFrame:
    """The JSON fields of the payloads as columns, after those of the raw row."""
    event = F.from_json(F.col("value").cast("string"), fields)
    return raw.withColumn("event", event).select(*RAW_COLUMNS, "event.*")


def kept(events: DataFrame, scenario: Scenario) -> DataFrame:
    """The events that count."""
    return events.where(_lateness() <= scenario.allowed_lateness_ms)


def closed(results: DataFrame) -> DataFrame:
    """Without the window of the closing event, which a batch sees and a stream never emits.

    In the stream this filter would be wrong: the optimizer moves it below the watermark, which then never
    advances.
    """
    return results.where(F.col("carrier") != "")


def place(departures: DataFrame, airports: DataFrame) -> DataFrame:
    """Add name and coordinates (degrees) of the destination; null where the airport is unknown."""
    places = airports.select(
        F.col("faa").alias("dest"),
        F.col("name").alias("dest_name"),
        F.col("lat").alias("dest_lat"),
        F.col("lon").alias("dest_lon"),
    )
    return departures.join(F.broadcast(places), "dest", "left")


def seat(departures: DataFrame, planes: DataFrame) -> DataFrame:
    """Add the seats of the aircraft; null where the tail number is unknown."""
    return departures.join(F.broadcast(planes.select("tailnum", "seats")), "tailnum", "left")


def with_weather(departures: DataFrame, observations: DataFrame, scenario: Scenario) -> DataFrame:
    """Join every departure with the observation at its origin in its hour; both sides carry a watermark."""
    delay = f"{scenario.watermark_delay_ms} milliseconds"
    left = departures.withColumn("hour", _hour()).withWatermark("hour", delay)
    right = observations.select(
        "station", _hour().alias("weather_hour"), "wind_mph_x100", "visib_mi_x100", "precip_in_x100"
    ).withWatermark("weather_hour", delay)
    return left.join(
        right, (left["origin"] == right["station"]) & (left["hour"] == right["weather_hour"]), "leftOuter"
    ).drop("station", "weather_hour")


def by_carrier_and_hour(joined: DataFrame, scenario: Scenario) -> DataFrame:
    """Counts, sums and maxima per carrier in windows of one hour; whole numbers only."""
    delay = F.col("delay_min")

    def count(condition: Column) -> Column:
        return F.count_if(F.coalesce(condition, F.lit(False)))

    def total(value: Column) -> Column:
        return F.sum(F.coalesce(value, F.lit(0)).cast("bigint"))

    return (
        joined.groupBy(F.window("hour", "1 hour"), "carrier")
        .agg(
            F.count("*").alias("flights"),
            count(F.col("cancelled")).alias("cancelled"),
            count(~F.col("cancelled")).alias("departed"),
            total(delay).alias("delay_sum_min"),
            F.max(delay).alias("delay_max_min"),
            count(delay >= LATE_MIN).alias("late_15"),
            count(F.col("dest_lon") < scenario.west_of_degrees).alias("west"),
            count(F.col("dest_lon").isNull()).alias("unplaced"),
            total(F.greatest(delay, F.lit(0)).cast("bigint") * F.col("seats")).alias("seat_delay_min"),
            count(F.col("visib_mi_x100").isNull()).alias("no_weather"),
            total(F.col("wind_mph_x100")).alias("wind_mph_x100_sum"),
            count(F.col("visib_mi_x100") < LOW_VISIBILITY_MI_X100).alias("low_visibility"),
            count(F.col("precip_in_x100") > 0).alias("wet"),
        )
        .withColumn("hour_ms", F.unix_millis("window.start"))
        .select(*_names(RESULT_FIELDS))
    )


def hourly_delays(
    departures: DataFrame, observations: DataFrame, airports: DataFrame, planes: DataFrame, scenario: Scenario
) -> DataFrame:
    """The whole main branch: parsed events in, one row per hour and carrier out."""
    flights = seat(place(kept(departures, scenario), airports), planes)
    needed = flights.select("carrier", "origin", "event_ms", "cancelled", "delay_min", "dest_lon", "seats")
    return by_carrier_and_hour(with_weather(needed, kept(observations, scenario), scenario), scenario)


def alerts(departures: DataFrame, airports: DataFrame, scenario: Scenario) -> DataFrame:
    """Departures with a large delay and their place."""
    large = kept(departures, scenario).where(F.col("delay_min") >= scenario.alert_delay_min)
    return place(large, airports).select(*_names(ALERT_FIELDS))


def dead_letters(events: DataFrame, scenario: Scenario) -> DataFrame:
    """Events that came too late, ready for the sink: value and key untouched, the reason as properties."""
    return events.where(_lateness() > scenario.allowed_lateness_ms).select(
        "key",
        "key_is_string",
        "value",
        F.timestamp_millis("event_ms").alias("event_time"),
        F.create_map(
            F.lit("reason"),
            F.lit("later than allowed"),
            F.lit("late_by_ms"),
            _lateness().cast("string"),
            F.lit("allowed_ms"),
            F.lit(str(scenario.allowed_lateness_ms)),
            F.lit("source_topic"),
            F.col("topic"),
        ).alias("properties"),
    )


def alert_message(alerts: DataFrame) -> DataFrame:
    """Alerts ready for the sink: JSON keyed by route."""
    return alerts.select(
        F.concat_ws("-", "origin", "dest").alias("key"),
        F.to_json(F.struct("*")).cast("binary").alias("value"),
        F.timestamp_millis("event_ms").alias("event_time"),
    )


def result_message(results: DataFrame) -> DataFrame:
    """Result rows ready for the sink: JSON keyed by carrier, event time at the start of the window."""
    return results.select(
        F.col("carrier").alias("key"),
        F.to_json(F.struct("*")).cast("binary").alias("value"),
        F.timestamp_millis("hour_ms").alias("event_time"),
    )


def _names(fields: str) -> list[str]:
    return [field.split()[0] for field in fields.split(", ")]


def _lateness() -> Column:
    return F.col("arrival_ms") - F.col("event_ms")


def _hour() -> Column:
    return F.timestamp_millis(F.col("event_ms") - F.pmod(F.col("event_ms"), F.lit(HOUR_MS)))
