"""How each kind of fault begins and ends on a running cluster."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.processes import DISK_BYTES, Cluster
from chaos.schedule import KINDS, Fault

_STOP_S: Final = 40.0
_UNLOAD: Final = "admin/v2/namespaces/public/default/unload"
_HOUR_S: Final = 3600


def impossible(cluster: Cluster) -> dict[str, str]:
    """Kinds that this machine does not have, and why."""
    found = {}
    if not cluster.clocks:
        found["clock"] = "needs a C compiler and the GNU C library"
    if shutil.which("strace") is None:
        found["disk error"] = "strace is not installed"
    return found


class Faults:
    """Makes and undoes faults."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._network = cluster.network
        self._tracers: dict[str, subprocess.Popen[bytes]] = {}
        self._begins: dict[str, Callable[[Fault], None]] = {
            "kill": self._kill,
            "kill metadata": self._kill,
            "metadata away": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "pause metadata": self._pause,
            "cut": self._cut,
            "cut bookie": self._cut,
            "one way": self._cut_one_way,
            "isolate": self._isolate,
            "lossy": lambda fault: self._network.lose(fault.targets[0], fault.strength),
            "slow": lambda fault: self._network.slow_down(fault.targets[0], fault.strength),
            "clock": lambda fault: cluster.clocks[fault.targets[0]].set(fault.strength / _HOUR_S),
            "full disk": self._fill,
            "disk error": self._break_disk,
            "move": self._move,
        }
        self._ends: dict[str, Callable[[Fault], None]] = {
            "kill": self._start,
            "kill metadata": self._start,
            "metadata away": self._start,
            "stop": self._start_again,
            "pause": self._go_on,
            "pause metadata": self._go_on,
            "cut": self._mend,
            "cut bookie": self._mend,
            "one way": self._mend,
            "isolate": self._join,
            "lossy": lambda fault: self._network.lose(fault.targets[0], 0.0),
            "slow": lambda fault: self._network.slow_down(fault.targets[0], 0.0),
            "clock": lambda fault: cluster.clocks[fault.targets[0]].set(0.0),
            "full disk": self._empty,
            "disk error": self._mend_disk,
            "move": lambda _: None,
        }
        assert set(self._begins) == set(self._ends) == set(KINDS)

    def begin(self, fault: Fault) -> None:
        """The fault is there on return."""
        self._begins[fault.kind](fault)

    def end(self, fault: Fault) -> None:
        """The fault is gone on return. A process that it ended is started, and may not be ready yet."""
        self._ends[fault.kind](fault)

    # -- processes ---------------------------------------------------------------------------------

    def _kill(self, fault: Fault) -> None:
        for name in fault.targets:
            self._cluster.servers[name].kill()

    def _start(self, fault: Fault) -> None:
        for name in fault.targets:
            self._cluster.servers[name].start()

    def _stop(self, fault: Fault) -> None:
        self._cluster.servers[fault.targets[0]].send(signal.SIGTERM)

    def _start_again(self, fault: Fault) -> None:
        self._cluster.servers[fault.targets[0]].stop(_STOP_S)
        self._start(fault)

    def _pause(self, fault: Fault) -> None:
        for name in fault.targets:
            self._cluster.servers[name].send(signal.SIGSTOP)

    def _go_on(self, fault: Fault) -> None:
        for name in fault.targets:
            self._cluster.servers[name].send(signal.SIGCONT)

    # -- network -----------------------------------------------------------------------------------

    def _cut(self, fault: Fault) -> None:
        one, other = fault.targets
        self._network.cut(one, other)
        self._network.cut(other, one)

    def _cut_one_way(self, fault: Fault) -> None:
        self._network.cut(*fault.targets)

    def _mend(self, fault: Fault) -> None:
        one, other = fault.targets
        self._network.mend(one, other)
        self._network.mend(other, one)

    def _isolate(self, fault: Fault) -> None:
        for other in self._others(fault):
            self._network.cut(fault.targets[0], other)
            self._network.cut(other, fault.targets[0])

    def _join(self, fault: Fault) -> None:
        for other in self._others(fault):
            self._network.mend(fault.targets[0], other)
            self._network.mend(other, fault.targets[0])

    def _others(self, fault: Fault) -> list[str]:
        return [each for each in self._cluster.shape.all if each != fault.targets[0]]

    # -- disks -------------------------------------------------------------------------------------

    def _fill(self, fault: Fault) -> None:
        # The file system becomes as small as what is in it: not a byte is free, and no memory is used up.
        disk = self._cluster.disk(fault.targets[0])
        _resize(disk, max(1 << 20, shutil.disk_usage(disk).used))

    def _empty(self, fault: Fault) -> None:
        _resize(self._cluster.disk(fault.targets[0]), DISK_BYTES)
        # A bookie may have ended of it.
        self._start(fault)

    def _break_disk(self, fault: Fault) -> None:
        """Every sync fails from now on."""
        name = fault.targets[0]
        pid = self._cluster.servers[name].pid
        if pid is not None:
            traced = [each for one in (pid, *_children(pid)) for each in ("-p", str(one))]
            inject = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]
            inject += ["-e", "inject=fsync,fdatasync:error=EIO"]
            self._tracers[name] = subprocess.Popen(
                ["strace", *inject, *traced], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
            )

    def _mend_disk(self, fault: Fault) -> None:
        tracer = self._tracers.pop(fault.targets[0], None)
        if tracer is not None:
            tracer.terminate()
            tracer.wait()
        # A bookie ends when a sync fails.
        self._start(fault)

    # -- the operator ------------------------------------------------------------------------------

    def _move(self, fault: Fault) -> None:
        # Asked from a process of its own: a broker that is away answers late.
        url = self._cluster.url(fault.targets[0], _UNLOAD)
        quiet = subprocess.DEVNULL
        program = (
            "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method='PUT'), timeout=20)"
        )
        subprocess.Popen([sys.executable, "-c", program, url], stdin=quiet, stdout=quiet, stderr=quiet)


def _children(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_children(child)]
    return found


def _resize(disk: Path, size_bytes: int) -> None:
    # With the type: without it, what mount adds by itself is refused in a namespace of users.
    options = ["-t", "tmpfs", "-o", f"remount,size={size_bytes}", "none", str(disk)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
