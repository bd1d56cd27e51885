"""Everything a run found, put against everything it should have found. Pure: evidence in, failures out."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from magnetar.demo.alerts import AlertVerdict
from magnetar.demo.compare import Comparison, compare
from magnetar.demo.engine import BatchOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the parts of a run reported."""

    independent: pd.DataFrame
    batch: BatchOutcome
    stream: pd.DataFrame
    """The rows of the results topic."""
    parquet: pd.DataFrame
    alerts: AlertVerdict
    alerts_expected: set[int]
    departures: int
    """Departures published, retries not counted."""
    observations: int
    """Weather observations published, retries not counted."""
    retried: int
    """Messages sent a second time."""
    refused: int
    """Retries that the broker answered without storing them."""
    too_late: int
    """Events beyond the allowed lateness, by the independent computation."""
    dropped_by_watermark: int

    @property
    def lost(self) -> int:
        """Published events that the topics do not hold."""
        stored = self.batch.departures_distinct + self.batch.weather_distinct
        return self.departures + self.observations - stored

    @property
    def duplicates_stored(self) -> int:
        """Copies that the topics hold beyond the first."""
        stored = self.batch.departures_stored + self.batch.weather_stored
        return stored - self.batch.departures_distinct - self.batch.weather_distinct

    @property
    def duplicates_removed(self) -> int:
        """Retries that left no second copy, counted in the topics and not from receipts."""
        return self.retried - self.duplicates_stored

    def comparisons(self) -> list[Comparison]:
        """Each computation against the independent one."""
        return [
            compare("stream", self.stream, "independent", self.independent),
            compare("batch", self.batch.results, "independent", self.independent),
            compare("parquet", self.parquet, "independent", self.independent),
        ]


def failures(evidence: Evidence, comparisons: list[Comparison]) -> list[str]:
    """What does not hold, one sentence each; empty when all is well."""
    found = [
        f"{each.left} ({each.left_rows:,} rows) and {each.right} ({each.right_rows:,} rows) differ in "
        f"{len(each.differing):,} rows"
        for each in comparisons
        if not each.agree
    ]
    alerts = evidence.alerts
    checks = [
        (evidence.lost == 0, f"{evidence.lost:,} published events are missing from the topics"),
        (
            evidence.duplicates_stored == 0,
            f"{evidence.duplicates_stored:,} retries were stored a second time",
        ),
        (
            evidence.refused == evidence.retried,
            f"the broker recognised {evidence.refused:,} of {evidence.retried:,} retries",
        ),
        (
            evidence.dropped_by_watermark == 0,
            f"the watermark dropped {evidence.dropped_by_watermark:,} rows that the lateness rule keeps",
        ),
        (
            evidence.batch.dead_letters_stored == evidence.too_late,
            f"{evidence.batch.dead_letters_stored:,} dead letters are stored of {evidence.too_late:,}",
        ),
        (
            evidence.batch.dead_letters == evidence.too_late,
            f"the batch finds {evidence.batch.dead_letters:,} dead letters of {evidence.too_late:,}",
        ),
        (
            evidence.batch.alerts == evidence.alerts_expected,
            f"the batch raises {len(evidence.batch.alerts):,} alerts of {len(evidence.alerts_expected):,}",
        ),
        (not alerts.missing, f"{len(alerts.missing):,} alerts never reached a consumer"),
        (not alerts.unexpected, f"{len(alerts.unexpected):,} alerts should not exist"),
        (not alerts.repeated, f"{alerts.repeated:,} alerts were received more than once"),
        (
            not alerts.disordered,
            f"{len(alerts.disordered):,} alerts came out of order, e.g. {alerts.disordered[:2]}",
        ),
        (
            not alerts.shared_routes,
            f"{len(alerts.shared_routes):,} routes were seen by more than one consumer",
        ),
        (not alerts.wrong_keys, f"{alerts.wrong_keys:,} alerts had a key other than their route"),
    ]
    return found + [sentence for holds, sentence in checks if not holds]
