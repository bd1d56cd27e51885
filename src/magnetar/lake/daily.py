"""Daily upkeep of tables whose files were merged automatically.

Merging leaves snapshots and files of metadata, which only upkeep removes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName

if TYPE_CHECKING:
    from magnetar.lake.tables import LakeTables

_log = logging.getLogger("magnetar.lake")

EACH_MS: Final = 24 * 3_600_000
KEEP_MS: Final = 5 * EACH_MS
"""Milliseconds after which snapshots expire, except the last KEEP_SNAPSHOTS."""
KEEP_SNAPSHOTS: Final = 10
TABLES_MAX: Final = 10
"""Most tables of one round; the others wait for the next round."""


class DailyUpkeep:
    """Remembers the last upkeep of each table."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: dict[TopicName, float] = {}
        self._waiting: dict[TopicName, None] = {}

    async def round(self, lake: LakeTables, log_names: Sequence[str]) -> None:
        """Does the upkeep of the tables of these logs, and of those left over from earlier rounds. An error
        is logged, and the table is tried again a day later."""
        now_ms = self._clock.monotonic_ms()
        # What is a day old need not be remembered: logs come and go.
        self._last_ms = {topic: last for topic, last in self._last_ms.items() if now_ms - last < EACH_MS}
        self._waiting.update(dict.fromkeys(TopicName.from_log_name(name).base for name in log_names))
        due = [topic for topic in self._waiting if topic not in self._last_ms]
        self._waiting = dict.fromkeys(due[TABLES_MAX:])
        for topic in due[:TABLES_MAX]:
            self._last_ms[topic] = now_ms
            try:
                await lake.maintain(topic, keep_ms=KEEP_MS, keep_min=KEEP_SNAPSHOTS, dry_run=False)
            except MagnetarError as error:
                # An error of one table must not delay the others; it is tried again a day later.
                _log.warning("the table of %s could not be maintained: %s", topic, error)
