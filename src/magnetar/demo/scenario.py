"""The simulated part of the tour on top of the recorded data: late reporters, repeated sends, and the
expected counts.

This is the ground truth that the event generator acts out and that the independent computation checks
against. All of it follows from `Scenario.seed`; two runs with one scenario are equal in every byte they
publish.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000

FLIGHTS_SALT = 1
WEATHER_SALT = 2
RETRIES_SALT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The knobs of one run."""

    seed: int = 2013
    hours_late_share: float = 0.02
    """Share of events (0 to 1) that arrive 1 to 6 hours after they happened."""
    days_late_share: float = 0.005
    """Share of events (0 to 1) that arrive 1.5 to 6 days after they happened."""
    retry_share: float = 0.01
    """Share of messages (0 to 1) that producers send a second time under the same sequence id."""
    allowed_lateness_ms: int = DAY_MS
    """An event that arrives later than this after it happened goes to the dead letters instead of its
    window.
    """
    skew_ms: int = 10 * DAY_MS
    """How far partitions of one topic may be apart in the stream, on the replay's clock, without a row
    being dropped.
    """
    alert_delay_min: int = 120
    """A departure at least this late raises an alert."""
    west_of_degrees: int = -100
    """Destinations with a longitude below this count as western."""

    @property
    def watermark_delay_ms(self) -> int:
        """How long windows stay open in the stream, on the replay's clock.

        The lateness rule looks only at the event (arrival against event time), so that a stream and a batch
        decide alike. The engine's watermark must never drop what the rule keeps: it waits for the allowed
        lateness, for the skew between partitions, and for the hour that truncating event times to their
        window takes away.
        """
        return self.allowed_lateness_ms + self.skew_ms + HOUR_MS


def lateness_ms(scenario: Scenario, count: int, salt: int) -> npt.NDArray[np.int64]:
    """How late each of `count` events arrives, in ms; 0 for most. `salt` separates the kinds of events."""
    rng = np.random.default_rng([scenario.seed, salt])
    draw = rng.random(count)
    hours = rng.integers(1 * HOUR_MS, 6 * HOUR_MS, count)
    days = rng.integers(36 * HOUR_MS, 144 * HOUR_MS, count)
    late = np.where(draw < scenario.days_late_share, days, 0)
    in_hours = (draw >= scenario.days_late_share) & (
        draw < scenario.days_late_share + scenario.hours_late_share
    )
    return np.where(in_hours, hours, late).astype(np.int64)
