"""Limits of managed logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.ledger.api import Copies
from magnetar.managedlog.log_rules import LOG_RULES, LogRules

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """How long consumed ledgers are kept.

    A consumed ledger is deleted as soon as one of the two limits allows it, so both must be set to keep
    anything: 0 keeps nothing, -1 (UNLIMITED) everything. Source: Pulsar's retention policy.
    """

    ms: int = 0
    """Milliseconds since the ledger's last entry was published. Default: 0, keeps nothing."""
    size_bytes: int = 0
    """Bytes of the whole log up to which consumed ledgers are kept. Default: 0, keeps nothing."""


@dataclass(frozen=True, slots=True)
class ManagedLogConfig:
    """Limits; the defaults suit a broker with some thousand logs."""

    entries_max_per_ledger: int = 5_000_000
    """Entries after which the log continues in a new ledger. Pulsar's 50,000 is meant for batches of
    producers: at 500k unbatched messages per second it would be ten ledgers each second, each with metadata
    writes. Ids, counters and the read index cost the same at any size; a ledger is expensive to keep until
    its last entry is consumed because of its bytes, so bytes are the limit that counts."""
    ledger_bytes_max: int = 2048 * 1024 * 1024
    """Bytes after which the log continues in a new ledger. Disk space is freed ledger by ledger."""
    rollover_ms_min: int = 600_000
    """A younger ledger, in milliseconds, is not left because of its size or entries."""
    rollover_ms_max: int = 4 * 3_600_000
    """A non-empty ledger of this age, in milliseconds, is left, so that retention by time works."""
    cache_bytes: int = 64 * 1024 * 1024
    """Bytes of the newest entries kept in memory, over all logs."""
    retention: Retention = field(default_factory=Retention)
    """Retention of a newly opened log; the broker then sets the topic's own policy."""
    copies: Copies | None = None
    """How many bookies hold the ledgers of a newly opened log; None: the process's default."""
    cursor_flush_ms: int = 20
    """Milliseconds that a cursor's changes may stay in memory when no caller waits for them. A crash loses at
    most these: the messages are delivered again."""
    cursor_compact_bytes_min: int = 1024 * 1024
    """Bytes of deltas in a cursor ledger before it is replaced by a snapshot."""
    cursor_compact_factor: int = 4
    """Deltas may also be this many times the snapshot: so writing costs at most 1 + 1/factor."""
    cursor_deltas_max: int = 16
    """Deltas after which a cursor's whole state is written again, into the same ledger. A start reads back to
    that, less than 1 ms for each cursor, instead of up to `cursor_compact_bytes_min` of deltas, about 150 ms.
    """
    cursor_fold_ranges_max: int = 1000
    """A closed cursor's state is stored in the metadata store when it has at most this many acknowledged
    ranges and half-acknowledged batches; otherwise it stays in its ledger."""
    cursors_for_pulsar: bool = False
    """Whether Pulsar's brokers may read the cursors after these ones: they take the last entry of a cursor
    ledger for the whole state."""
    recovery_read_bytes: int = 1024 * 1024
    """Bytes of a cursor ledger per read during its recovery."""
    rules: LogRules = LOG_RULES
    """What must be stored before what."""
