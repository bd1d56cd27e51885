"""What one log consists of before anything is appended to it."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.managedlog.cursors.log_cursors import LogCursors
from magnetar.managedlog.ledger_list import LedgerList
from magnetar.managedlog.log_reading import LogReading
from magnetar.managedlog.offloading import LogOffloading
from magnetar.managedlog.stored_log import StoredLog
from magnetar.managedlog.tail_cache import TailCache


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """The parts of one log; its recovery makes them, and they live as long as it is open."""

    stored: StoredLog
    """Its value in the metadata store."""
    ledgers: LedgerList
    """Its ledgers in memory."""
    cache: TailCache
    reading: LogReading
    cursors: LogCursors
    offloading: LogOffloading
