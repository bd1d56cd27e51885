"""When a log goes on in a new ledger. Pure."""

from __future__ import annotations

from typing import Final

from magnetar.managedlog.config import ManagedLogConfig

_SPREAD: Final = 20
"""Ledgers reach their age over a stretch of this part of it: ten thousand logs that were opened together
would else all begin a new ledger in one second. Pulsar adds the same 5 %, by chance."""
_STEPS: Final = 256


def age_max_ms(config: ManagedLogConfig, ledger_id: int) -> int:
    """Age at which this ledger is left when it holds anything; differs from ledger to ledger."""
    return config.rollover_ms_max + config.rollover_ms_max * (ledger_id % _STEPS) // (_SPREAD * _STEPS)


def is_due(config: ManagedLogConfig, *, entries: int, size_bytes: int, age_ms: int) -> bool:
    """Whether a ledger of this size and age is to be left; never an empty one."""
    if not entries:
        return False
    if age_ms >= config.rollover_ms_max:
        return True
    full = entries >= config.entries_max_per_ledger or size_bytes >= config.ledger_bytes_max
    return full and age_ms >= config.rollover_ms_min
