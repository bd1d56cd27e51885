"""What a broker tells of its longest stall and garbage collection."""

from __future__ import annotations

import math

from bench.gauges import of_rows_ms

ROWS = """\
# HELP magnetar_gc_pause_seconds_max Longest garbage collection since the start.
# TYPE magnetar_gc_pause_seconds_max gauge
magnetar_gc_pause_seconds_max 0.0125
magnetar_loop_stall_seconds_max 0.5
magnetar_loop_stall_seconds_max_of_another 7
"""


def test_stall_and_collection_are_told_in_milliseconds() -> None:
    assert of_rows_ms(ROWS) == {"stall_max_ms": 500.0, "gc_max_ms": 12.5}


def test_what_is_not_told_is_no_number() -> None:
    assert all(map(math.isnan, of_rows_ms("").values()))
