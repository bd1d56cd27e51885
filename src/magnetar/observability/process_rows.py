"""Metrics of the process: event loop, garbage collector, memory, descriptors."""

from __future__ import annotations

from typing import Final

from magnetar.observability.rows import Section
from magnetar.observability.rows import counter as _c
from magnetar.observability.rows import gauge as _g
from magnetar.observability.rows import histogram as _h

_K: Final = ("cluster",)

PROCESS: Final = Section(
    "Process",
    (
        _c("magnetar_clock_steps_total", "", _K, "Times that the clock was set by more than two seconds."),
        _h(
            "magnetar_loop_stall_seconds",
            (),
            "Delay of the event loop at regular checks, caused by other work or garbage collection.",
        ),
        _g(
            "magnetar_loop_stall_seconds_max",
            "seconds",
            (),
            "Longest delay of the event loop since the start.",
        ),
        _c(
            "magnetar_gc_seconds_total",
            "seconds",
            ("generation",),
            "Time in which the garbage collector stopped the event loop.",
        ),
        _g("magnetar_gc_pause_seconds_max", "seconds", (), "Longest garbage collection since the start."),
        _c("python_gc_collections_total", "", ("generation",), "Garbage collections, by generation."),
        _c("python_gc_objects_collected_total", "", ("generation",), "Garbage objects found."),
        _g("process_resident_memory_bytes", "bytes", (), "Resident memory size in bytes."),
        _c("process_cpu_seconds_total", "seconds", (), "User and system CPU time spent in seconds."),
        _g(
            "process_start_time_seconds",
            "seconds",
            (),
            "Start time of the process since unix epoch in seconds.",
        ),
        _g("process_open_fds", "", (), "Number of open file descriptors."),
        _g("process_max_fds", "", (), "Maximum number of open file descriptors."),
        _g("magnetar_broker_draining", "", _K, "1 while the broker shuts down."),
    ),
)
