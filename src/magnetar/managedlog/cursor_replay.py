"""Reading a cursor's ledger back after a crash: from its last whole state on, and never long at a time.

    entry   0         1      …     64       65          …      last
            snapshot  delta  …     delta    snapshot    …      delta
                                            ◀── these are read

The last entries are read first. What was written by earlier versions has one snapshot, at its beginning: then
all of it is read, and others have the event loop in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.base.errors import CorruptDataError
from magnetar.ledger.api import LedgerReader
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.cursor_codec import decode_entry
from magnetar.managedlog.cursor_delta import CursorDelta
from magnetar.managedlog.cursor_state import CursorState
from magnetar.managedlog.errors import InvalidLogDataError

_log = logging.getLogger("magnetar.managedlog")

ENTRIES_PER_TURN: Final = 32
"""Entries that are applied before the event loop serves others: about a millisecond."""
_TELL_EVERY: Final = 10_000
"""Entries between two lines of the log about one cursor: a second or so of work."""


class ReplayProgress:
    """How far the cursors of a process have been read back. One for all logs."""

    def __init__(self) -> None:
        self.cursors = 0
        """Cursors that were read back since the start."""
        self.entries = 0
        """Entries that were read for them."""
        self.running = 0
        """Cursors that are being read back now."""

    @contextmanager
    def replaying(self, name: str) -> Iterator[None]:
        """While one is."""
        self.running += 1
        before = self.entries
        try:
            yield
        finally:
            self.running -= 1
            self.cursors += 1
            if self.entries - before >= _TELL_EVERY:
                _log.info("%s was read back from %d entries", name, self.entries - before)


class CursorReplay:
    """Of one cursor."""

    def __init__(
        self, state: CursorState, ledger_id: int, config: ManagedLogConfig, progress: ReplayProgress
    ) -> None:
        self._state = state
        self._ledger_id = ledger_id
        self._config = config
        self._progress = progress
        self.position = 0
        """Entries before it are in the state."""

    async def run(self, reader: LedgerReader) -> None:
        """Applies what the ledger holds. Raises what reading raises, with the state of what came before."""
        deltas = await self._since_whole(reader)
        if deltas is None:
            await self._each(reader, 0, self._apply)
            return
        for number, (delta, position) in enumerate(deltas, 1):
            self._apply(delta, position)
            if number % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _since_whole(self, reader: LedgerReader) -> list[tuple[CursorDelta, int]] | None:
        """The last entry that holds the whole state, and what follows; None when none is near the end."""
        deltas: list[tuple[CursorDelta, int]] = []

        def keep(delta: CursorDelta, position: int) -> None:
            if delta.replaces:
                deltas.clear()
            deltas.append((delta, position))

        first = max(0, reader.last_entry - 2 * self._config.cursor_deltas_max)
        try:
            await self._each(reader, first, keep)
        except (CorruptDataError, InvalidLogDataError):
            # From the beginning, up to the damage: what comes before it is to be known.
            return None
        return deltas if deltas and deltas[0][0].replaces else None

    def _apply(self, delta: CursorDelta, position: int) -> None:
        self._state.apply(delta)
        self.position = position + 1
        self._progress.entries += 1

    async def _each(self, reader: LedgerReader, first: int, use: Callable[[CursorDelta, int], None]) -> None:
        position = first
        while position <= reader.last_entry:
            runs = await reader.read(position, reader.last_entry, self._config.recovery_read_bytes)
            for run in runs:
                for entry in run.entries:
                    use(decode_entry(entry, f"cursor ledger {self._ledger_id} entry {position}"), position)
                    position += 1
                    if position % ENTRIES_PER_TURN == 0:
                        await asyncio.sleep(0)
