"""What took a broker the longest since its start, as the rows of its /metrics tell it."""

from __future__ import annotations

import urllib.request
from typing import Final

_GAUGES: Final = {
    "stall_max_ms": "magnetar_loop_stall_seconds_max",
    "gc_max_ms": "magnetar_gc_pause_seconds_max",
}
"""Both in seconds."""


def longest_ms(http_url: str) -> dict[str, float]:
    """Its longest stall and garbage collection; nan when it does not answer within a minute."""
    try:
        with urllib.request.urlopen(f"{http_url}/metrics", timeout=60) as answer:
            rows = answer.read().decode()
    except OSError:
        rows = ""
    return of_rows_ms(rows)


def of_rows_ms(rows: str) -> dict[str, float]:
    """The same, from the rows; nan for a gauge that is not among them."""
    told = {name: value for name, _, value in (row.rpartition(" ") for row in rows.splitlines())}
    return {key: float(told.get(gauge, "nan")) * 1000 for key, gauge in _GAUGES.items()}
