"""Reads a cursor's ledger back after a crash: from its last whole state on, in short pieces.

    entry  0         1      …  16     17        …  last
           snapshot  delta  …  delta  snapshot  …  delta
                                      ◀── these are read

The last entries are read first, then those before them, four times as many with each step: a large state is
written rarely. A ledger of an earlier version has one snapshot, at its beginning: then all of it is read, and
other tasks run in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import LedgerReader
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.cursors.cursor_codec import decode_entry
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.cursors.cursor_state import CursorState
from magnetar.managedlog.cursors.replay_turns import ReplayTurns
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.runtime.tasks import yield_loop

_log = logging.getLogger("magnetar.managedlog")

ENTRIES_PER_TURN: Final = 32
"""Entries that are applied before other tasks run: about a millisecond."""
_TELL_EVERY: Final = 10_000
"""Entries between two log lines about one cursor: a second or so of work."""
_TELL_CURSORS: Final = 1_000
"""Cursors between two log lines about all of them: as much work."""
_STEPS: Final = 3
"""How often the search for the last snapshot goes further back before the whole ledger is read."""


class ReplayProgress:
    """Progress of reading back the cursors of a process. One for all logs."""

    def __init__(self) -> None:
        self.cursors = 0
        """Cursors that were read back since the start."""
        self.entries = 0
        """Entries read for them."""
        self.running = 0
        """Cursors that are being read back now."""
        self.turns = ReplayTurns()
        """Serialises the logs whose cursors are read back."""

    @contextmanager
    def replaying(self, name: str) -> Iterator[None]:
        """Counts a cursor for the duration of the block."""
        self.running += 1
        before = self.entries
        try:
            yield
        finally:
            self.running -= 1
            self.cursors += 1
            if self.entries - before >= _TELL_EVERY:
                _log.info("%s was read back from %d entries", name, self.entries - before)
            if self.cursors % _TELL_CURSORS == 0:
                _log.info(
                    "%d cursors have been read back from %d entries; logs that wait for their turn: %d",
                    self.cursors,
                    self.entries,
                    self.turns.waiting,
                )


class CursorReplay:
    """Reads back one cursor."""

    def __init__(
        self, state: CursorState, ledger_id: LedgerId, config: ManagedLogConfig, progress: ReplayProgress
    ) -> None:
        self._state = state
        self._ledger_id = ledger_id
        self._config = config
        self._progress = progress
        self.position = 0
        """Earlier entries are applied."""

    async def run(self, reader: LedgerReader) -> None:
        """Applies the entries of the ledger. Raises the errors of reading; the state then includes all
        entries before the error."""
        deltas = await self._since_whole(reader)
        if deltas is None:
            await self._each(reader, 0, reader.last_entry, self._apply)
            return
        for number, (delta, position) in enumerate(deltas, 1):
            self._apply(delta, position)
            if number % ENTRIES_PER_TURN == 0:
                await yield_loop()

    async def _since_whole(self, reader: LedgerReader) -> list[tuple[CursorDelta, int]] | None:
        """The last entry that holds the whole state, and those after it; None when there is none near the
        end."""
        deltas: list[tuple[CursorDelta, int]] = []
        last, width = reader.last_entry, 1 + self._config.cursor_deltas_max
        for _ in range(_STEPS):
            if last < 0:
                break
            first = max(0, last + 1 - width)
            part: list[tuple[CursorDelta, int]] = []

            def keep(delta: CursorDelta, position: int, part: list[tuple[CursorDelta, int]] = part) -> None:
                if delta.replaces:
                    part.clear()
                part.append((delta, position))

            try:
                await self._each(reader, first, last, keep)
            except (CorruptDataError, InvalidLogDataError):
                # From the beginning, up to the damage: the entries before it count.
                return None
            deltas = part + deltas
            if part[0][0].replaces:
                return deltas
            last, width = first - 1, 4 * width
        return None

    def _apply(self, delta: CursorDelta, position: int) -> None:
        self._state.apply(delta)
        self.position = position + 1
        self._progress.entries += 1

    async def _each(
        self, reader: LedgerReader, first: int, last: int, use: Callable[[CursorDelta, int], None]
    ) -> None:
        position = first
        while position <= last:
            runs = await reader.read(position, last, self._config.recovery_read_bytes)
            for run in runs:
                for entry in run.entries:
                    use(decode_entry(entry, f"cursor ledger {self._ledger_id} entry {position}"), position)
                    position += 1
                    if position % ENTRIES_PER_TURN == 0:
                        await yield_loop()
