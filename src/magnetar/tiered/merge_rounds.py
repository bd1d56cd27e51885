"""Merges small objects automatically: one log at a time, a bounded part of each in each round.

The copy of a ledger waits for one object at most: the turn is released after each. Logs that were merged
longest ago come first, so that one that always has something to merge does not delay the others.
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
"""Objects that become one, at least: each merge is an object, a snapshot and some changes of the list."""
LOG_BYTES: Final = 128 << 20
"""Of objects of one log that are merged in one round."""
ROUND_BYTES: Final = 512 << 20
"""The same of all logs: what is left waits for the next round."""
_PER_TURN: Final = 20
"""Logs looked at before others have the event loop: of each the whole list is."""


class MergeRounds:
    """Goes over logs, again and again."""

    def __init__(
        self, merger: Merger, *, members_min: int = MEMBERS_MIN, round_bytes: int = ROUND_BYTES
    ) -> None:
        self._merger = merger
        self._bounds = MergeBounds(members_min, LOG_BYTES)
        self._round_bytes = round_bytes
        self._rounds = 0
        self._last: dict[str, int] = {}
        """In which round each log was merged last."""
        self._backoffs: dict[str, Backoff] = {}

    async def round(self, logs: Sequence[tuple[OffloadedLog, OffloadPolicy]], now_ms: int) -> list[str]:
        """The names of the logs of which objects were merged. Errors of one log are logged and tried again
        later, after pauses that grow."""
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
        """Bytes of the objects that became others."""
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
