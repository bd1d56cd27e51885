"""Merges small objects automatically: one log at a time, a bounded part of each in each round.

Copying a ledger waits for one merge at most: the lock is released after each object. Logs that were merged
longest ago come first, so that a log that always has objects to merge does not delay the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.runtime.tasks import yield_loop
from magnetar.tiered.api import LedgerMovedError, OffloadedLog
from magnetar.tiered.backoff import Backoff
from magnetar.tiered.merger import Merger
from magnetar.tiered.merging import MergeBounds
from magnetar.tiered.policy import OffloadPolicy

_log = logging.getLogger("magnetar.tiered")

MEMBERS_MIN: Final = 8
"""Fewest objects that are merged into one: each merge costs an object, a snapshot and some changes of the
list."""
LOG_BYTES: Final = 128 << 20
"""Most bytes of objects of one log that are merged in one round."""
ROUND_BYTES: Final = 512 << 20
"""Most bytes of objects of all logs that are merged in one round; the rest waits for the next round."""
_PER_TURN: Final = 20
"""Logs whose lists are read before the event loop gets a turn."""


class MergeRounds:
    """Merges objects of logs in rounds."""

    def __init__(
        self, merger: Merger, *, members_min: int = MEMBERS_MIN, round_bytes: int = ROUND_BYTES
    ) -> None:
        self._merger = merger
        self._bounds = MergeBounds(members_min, LOG_BYTES)
        self._round_bytes = round_bytes
        self._rounds = 0
        self._last: dict[str, int] = {}
        """By log: the number of the round in which it was last merged."""
        self._backoffs: dict[str, Backoff] = {}

    async def round(self, logs: Sequence[tuple[OffloadedLog, OffloadPolicy]], now_ms: int) -> list[str]:
        """Merges objects; returns the names of the logs that had some. An error of one log is logged, and the
        log is tried again after a growing pause."""
        self._rounds += 1
        names = {log.name for log, _ in logs}
        self._last = {name: number for name, number in self._last.items() if name in names}
        self._backoffs = {name: backoff for name, backoff in self._backoffs.items() if name in names}
        merged, bytes_done = [], 0
        for number, (log, policy) in enumerate(
            sorted(logs, key=lambda pair: self._last.get(pair[0].name, 0))
        ):
            if number % _PER_TURN == 0:
                await yield_loop()
            if bytes_done >= self._round_bytes:
                break
            done = await self._merge(log, policy, now_ms)
            if done:
                self._last[log.name] = self._rounds
                merged.append(log.name)
                bytes_done += done
        return merged

    async def _merge(self, log: OffloadedLog, policy: OffloadPolicy, now_ms: int) -> int:
        """Merges objects of one log; returns the bytes of the merged objects."""
        backoff = self._backoffs.get(log.name)
        if not log.open or (backoff is not None and backoff.waits(now_ms)):
            return 0
        try:
            done = await self._merger.merge(log, policy, bounds=self._bounds)
        except LedgerMovedError as error:
            _log.info("%s", error)
            return 0
        except MagnetarError as error:
            pause_ms = self._backoffs.setdefault(log.name, Backoff()).failed(now_ms)
            _log.warning(
                "small objects of log %s stay for now, tried again in %d s: %s",
                log.name,
                pause_ms // 1000,
                error,
            )
            return 0
        self._backoffs.pop(log.name, None)
        return done.file_bytes
