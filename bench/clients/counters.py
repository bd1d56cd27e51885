"""What a broker's processes have used: CPU, context switches, system calls, commits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import proc
from bench.broker import Broker

EVENTS: Final = ("raw_syscalls:sys_enter", "syscalls:sys_enter_fdatasync", "syscalls:sys_enter_fsync")
_SWITCHES: Final = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)
_SYNCS: Final = re.compile(r"^magnetar_sync_seconds_count(?:\{[^}]*\})?\s+(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters at one moment."""

    cpu_s: float
    switches: int
    """Context switches of all its threads, those that it asked for by waiting and the others."""
    commits: float
    """Syncs of the store; NaN where the broker does not say."""
    machine_cpu_s: float


def pids(root: int) -> list[int]:
    """A broker's processes."""
    return [stat.pid for stat in proc.tree(root, proc.read_all())]


def prefer(root: int) -> None:
    """Gives a broker that runs, in a session of its own, its core before others of the machine."""
    group = Path(f"/proc/{root}/autogroup")
    if group.exists():
        group.write_text("-20")
    for pid in pids(root):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -20)


def switches_in(status: str) -> int:
    """Both kinds of context switches in the text of /proc/PID/task/TID/status."""
    return sum(map(int, _SWITCHES.findall(status)))


def _switches(root: int) -> int:
    count = 0
    for pid in pids(root):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                count += switches_in((thread / "status").read_text())
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
    return count


def commits_in(exposition: str) -> float:
    """The store's syncs in the text of `/metrics`."""
    return sum(map(float, _SYNCS.findall(exposition))) if _SYNCS.search(exposition) else float("nan")


def _commits(broker: Broker) -> float:
    if not broker.http_url:
        return float("nan")
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as answer:
        return commits_in(answer.read().decode())


def read(broker: Broker, *, commits_first: bool) -> Counts:
    """The counters now. `commits_first`: asking for them costs the broker a few milliseconds, which are left
    out of what is measured when they come first at its beginning and last at its end."""
    assert broker.pid is not None
    commits = _commits(broker) if commits_first else 0.0
    usage = proc.usage(broker.pid)
    switches, machine_cpu_s = _switches(broker.pid), proc.machine_cpu_s()
    return Counts(usage.cpu_s, switches, commits if commits_first else _commits(broker), machine_cpu_s)


class SystemCalls:
    """Counts system calls of a broker's processes, with perf; what cannot be counted is left out."""

    def __init__(self, root: int) -> None:
        command = ["perf", "stat", "-x", ";", "-e", ",".join(EVENTS), "-p", ",".join(map(str, pids(root)))]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"LC_ALL": "C"},
        )

    def stop(self) -> dict[str, float]:
        """`system_calls` and `syncs` since the beginning."""
        self._process.send_signal(signal.SIGINT)
        _, text = self._process.communicate(timeout=30)
        counts = counted(text)
        if EVENTS[0] not in counts:
            return {}
        return {
            "system_calls": counts[EVENTS[0]],
            "syncs": sum(counts.get(event, 0.0) for event in EVENTS[1:]),
        }


def counted(text: str) -> Mapping[str, float]:
    """Values by event in what `perf stat -x ;` says; those that are not numbers are left out."""
    rows = [line.split(";") for line in text.splitlines() if line.count(";") >= 2]
    return {row[2]: float(row[0]) for row in rows if row[0].replace(".", "", 1).isdecimal()}
