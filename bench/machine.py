"""What the measurement ran on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the text of /proc/cpuinfo, or "unknown"."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return "unknown"


def memory_bytes(meminfo: str) -> int:
    """MemTotal in the text of /proc/meminfo; 0 when it is not there."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def file_system(mounts: str, folder: Path) -> str:
    """Type and device of the file system that holds `folder`, from the text of /proc/mounts."""
    best, found = "", "unknown"
    for line in mounts.splitlines():
        device, mount, kind = line.split()[:3]
        mount = mount.replace("\\040", " ")
        inside = folder == Path(mount) or Path(mount) in folder.parents
        if inside and len(mount) >= len(best):
            best, found = mount, f"{kind} on {device}"
    return found


def describe(data_folder: Path) -> dict[str, str | int | float]:
    """CPU, memory, kernel, Python, file system, load and time of this run."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory_bytes(Path("/proc/meminfo").read_text()) / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": file_system(Path("/proc/mounts").read_text(), data_folder.resolve()),
        "load_1min_at_start": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
