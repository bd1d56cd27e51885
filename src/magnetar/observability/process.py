"""Metrics of this process from the operating system.

Linux has them in /proc (proc(5)); elsewhere only the values of `resource` and `time` are shown.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

from magnetar.observability.metrics import Exposition

_PROC = Path("/proc/self")
_STARTED_S = time.time()


def resident_bytes() -> int:
    """Resident memory in bytes; without /proc the highest so far."""
    try:
        pages = int((_PROC / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def waited_s() -> float:
    """Seconds for which the main thread, which runs the event loop, was ready and waited for a processor.

    0 where the system does not say. Source: proc(5), the second number of `schedstat`, in nanoseconds.
    """
    try:
        return int((_PROC / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        # A kernel without the figure, or another system: a broker is then judged by what it uses alone.
        return 0.0


def open_descriptors() -> int | None:
    """Number of open file descriptors; None when it is unknown."""
    try:
        return len(os.listdir(_PROC / "fd")) - 1
    except OSError:
        return None


def collect(exposition: Exposition) -> Iterable[None]:
    """A collector with the names that Prometheus's client libraries agreed on."""
    exposition.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    exposition.counter(
        "process_cpu_seconds_total",
        "User and system CPU time spent in seconds.",
        usage.ru_utime + usage.ru_stime,
    )
    exposition.gauge(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", _STARTED_S
    )
    descriptors = open_descriptors()
    if descriptors is not None:
        exposition.gauge("process_open_fds", "Number of open file descriptors.", descriptors)
    exposition.gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    return ()
