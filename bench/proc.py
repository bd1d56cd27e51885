"""What a process and all its descendants used: CPU seconds, resident memory, threads; read from /proc.

A broker may have helper processes, so one pid is never enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/PID/stat that a measurement needs (source: proc(5))."""

    pid: int
    parent: int
    cpu_s: float
    """User and system time of all its threads and of its children that have ended and were waited for."""
    threads: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """A process with all its descendants, added up."""

    processes: int
    threads: int
    cpu_s: float
    rss_bytes: int
    """Resident bytes added up; pages that processes share count once for each."""


def parse_stat(text: str) -> ProcessStat:
    """Parse one line of /proc/PID/stat; the name in parentheses may hold spaces and parentheses itself."""
    pid, rest = text.split(" (", 1)
    values = rest[rest.rindex(")") + 2 :].split()
    # Field n of proc(5) is values[n - 3]: 4 ppid, 14-17 utime stime cutime cstime, 20 threads, 24 rss.
    return ProcessStat(
        pid=int(pid),
        parent=int(values[1]),
        cpu_s=sum(map(int, values[11:15])) / TICKS_PER_S,
        threads=int(values[17]),
        rss_bytes=int(values[21]) * PAGE_BYTES,
    )


def tree(root: int, stats: Iterable[ProcessStat]) -> list[ProcessStat]:
    """The process `root` and its descendants, the root first; empty when it is not there."""
    children: dict[int, list[ProcessStat]] = {}
    found: list[ProcessStat] = []
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
        if stat.pid == root:
            found.append(stat)
    for stat in found:  # grows while it is walked
        found.extend(children.get(stat.pid, ()))
    return found


def read_all() -> list[ProcessStat]:
    """Every process at this moment; those that end meanwhile are left out."""
    stats = []
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            try:
                stats.append(parse_stat(Path(entry.path, "stat").read_text()))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return stats


def parse_machine_cpu_s(text: str) -> float:
    """User, nice, system and stolen seconds of all cores in the text of /proc/stat.

    Interrupts are left out: they do the network work of the processes that are measured.
    """
    user, nice, system, _, _, _, _, steal = map(int, text.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + steal) / TICKS_PER_S


def machine_cpu_s() -> float:
    """What all processes of the machine together have used since it started."""
    return parse_machine_cpu_s((PROC / "stat").read_text())


def usage(root: int) -> TreeUsage:
    """What `root` and its descendants have used so far; raises ProcessLookupError when it is gone."""
    found = tree(root, read_all())
    if not found:
        raise ProcessLookupError(f"no process {root}")
    return TreeUsage(
        processes=len(found),
        threads=sum(stat.threads for stat in found),
        cpu_s=sum(stat.cpu_s for stat in found),
        rss_bytes=sum(stat.rss_bytes for stat in found),
    )
