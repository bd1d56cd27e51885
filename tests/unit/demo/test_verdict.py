"""Every check of the verdict fails when its evidence does, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from magnetar.demo.alerts import AlertVerdict

pytest.importorskip("pyspark")

from magnetar.demo.engine import BatchOutcome
from magnetar.demo.verdict import Evidence, failures

TABLE = pd.DataFrame({"hour_ms": [1, 2], "carrier": ["AA", "AA"], "flights": [3, 4]})
OTHER = TABLE.assign(flights=[3, 5])
ALERTS = AlertVerdict(
    received=1,
    missing=set(),
    unexpected=set(),
    repeated=0,
    disordered=[],
    shared_routes=set(),
    wrong_keys=0,
    per_consumer={"a": 1},
)
BATCH = BatchOutcome(
    results=TABLE,
    departures_stored=7,
    departures_distinct=7,
    weather_stored=3,
    weather_distinct=3,
    alerts={42},
    dead_letters=1,
    dead_letters_stored=1,
)
SOUND = Evidence(
    independent=TABLE,
    batch=BATCH,
    stream=TABLE,
    parquet=TABLE,
    alerts=ALERTS,
    alerts_expected={42},
    departures=7,
    observations=3,
    retried=2,
    refused=2,
    too_late=1,
    dropped_by_watermark=0,
)


def test_sound_evidence_passes() -> None:
    assert failures(SOUND, SOUND.comparisons()) == []
    assert (SOUND.lost, SOUND.duplicates_removed) == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stream": OTHER}, "stream"),
        ({"parquet": OTHER}, "parquet"),
        ({"batch": replace(BATCH, results=OTHER)}, "batch"),
        ({"departures": 8}, "missing from the topics"),
        ({"batch": replace(BATCH, departures_stored=8)}, "stored a second time"),
        ({"refused": 1}, "recognised"),
        ({"dropped_by_watermark": 1}, "watermark"),
        ({"batch": replace(BATCH, dead_letters_stored=0)}, "dead letters are stored"),
        ({"batch": replace(BATCH, dead_letters=0)}, "finds 0 dead letters"),
        ({"batch": replace(BATCH, alerts=set())}, "raises 0 alerts"),
        ({"alerts": replace(ALERTS, missing={1})}, "never reached"),
        ({"alerts": replace(ALERTS, unexpected={1})}, "should not exist"),
        ({"alerts": replace(ALERTS, repeated=1)}, "more than once"),
        ({"alerts": replace(ALERTS, disordered=[("EWR-LAX", 2, 1)])}, "out of order"),
        ({"alerts": replace(ALERTS, shared_routes={"EWR-LAX"})}, "more than one consumer"),
        ({"alerts": replace(ALERTS, wrong_keys=1)}, "other than their route"),
    ],
)
def test_each_flaw_is_named(change: dict[str, Any], words: str) -> None:
    flawed = replace(SOUND, **change)
    found = failures(flawed, flawed.comparisons())
    assert len(found) == 1
    assert words in found[0]


def test_lost_and_duplicates_are_counted_in_the_topics() -> None:
    flawed = replace(SOUND, batch=replace(BATCH, departures_stored=6, departures_distinct=5))
    assert (flawed.lost, flawed.duplicates_stored, flawed.duplicates_removed) == (2, 1, 1)
