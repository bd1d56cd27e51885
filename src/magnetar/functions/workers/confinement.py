"""What the code of a function may use of its machine: files, memory, descriptors, processes, ports. Driver.

The process confines itself before it loads the code. It keeps the interpreter and its libraries, the
certificates and names of the system, its own package, and, to write, the state of its namespace and a folder
of its own. The data of the server, its keys and settings, and the functions of other tenants are out of
reach. It starts no processes, unless an operator allows that, and takes no connections. The server goes
before it when both want the processor.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import magnetar
from magnetar.functions.errors import CannotConfineError, ConfinementError
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.workers import landlock, system_calls

_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/lib"),
    *("/etc/ld.so.cache", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/localtime", "/etc/timezone"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/mime.types", "/etc/alternatives"),
    *("/run/systemd/resolve", "/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat"),
    *("/proc/sys", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
)
"""Read by Python, its libraries and the C library. Of `/etc` no more: keys of servers lie there."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
NICE: Final = 5
"""The priority of instances: a third of the server's share when both want a processor."""
FILES_MAX: Final = 4_096
"""Most files and connections that an instance may have open."""


def confine(plan: InstancePlan) -> None:
    """Sets the limits of the plan, and confines the process when the plan says so. Raises
    ConfinementError."""
    _limit(plan)
    if not plan.confines:
        return
    own = Path(plan.code_folder)
    temporary = own / "tmp"
    state = Path(plan.state_file).parent
    for folder in (temporary, state):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = os.environ["HOME"] = str(temporary)
    reads = [*map(Path, _SYSTEM), *_pythons(), Path(plan.package).resolve().parent]
    _refuse_open(reads, Path(plan.work_folder))
    try:
        system_calls.refuse(starts_processes=plan.starts_processes)
        landlock.confine(reads, [own, state, *map(Path, _DEVICES)], _ports(plan))
    except CannotConfineError as error:
        if plan.must_confine:
            raise ConfinementError(
                f"the code cannot be kept from the server's files: {error}. With functions_unconfined = true"
                " it runs all the same, and can read what the server can"
            ) from error


def _ports(plan: InstancePlan) -> frozenset[int] | None:
    """Ports to which the code may connect; None: all."""
    if not plan.connect_ports:
        return None
    urls = map(urlsplit, (plan.service_url, plan.admin_url))
    return frozenset((*plan.connect_ports, *(url.port for url in urls if url.port)))


def _pythons() -> list[Path]:
    """Where this interpreter and its packages are."""
    named = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, str(Path(magnetar.__file__).parent)}
    return [Path(each).resolve() for each in sorted(named) if each]


def _refuse_open(reads: list[Path], folder: Path) -> None:
    """A folder of libraries above the server's data would open them."""
    data = folder.resolve()
    for path in reads:
        if data.is_relative_to(path):
            raise ConfinementError(
                f"the code of functions reads its libraries in {path}, and the server's data lie there too:"
                " move the data, or the libraries, elsewhere"
            )


def _limit(plan: InstancePlan) -> None:
    # Files of a dead process hold the memory, with token and secrets.
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, FILES_MAX)
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    if plan.memory_bytes_max:
        _lower(resource.RLIMIT_DATA, plan.memory_bytes_max)
    if plan.file_bytes_max:
        _lower(resource.RLIMIT_FSIZE, plan.file_bytes_max)


def _lower(kind: int, value: int) -> None:
    """Sets a limit, unless a lower one is in force; the code cannot raise it."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, limit))
