"""When a log goes on in a new ledger. Pure."""

from __future__ import annotations

from magnetar.managedlog.config import ManagedLogConfig


def is_due(config: ManagedLogConfig, *, entries: int, size_bytes: int, age_ms: int) -> bool:
    """Whether a ledger of this size and age is to be left; never an empty one."""
    if not entries:
        return False
    if age_ms >= config.rollover_ms_max:
        return True
    full = entries >= config.entries_max_per_ledger or size_bytes >= config.ledger_bytes_max
    return full and age_ms >= config.rollover_ms_min
