"""A run has network, mounts and processes of its own: nothing of it is left when it ends, however it ends.

The program starts itself again under `unshare`: in new namespaces of network, mounts and processes, as a user
without root in one of users as well. When the first process of the new one ends, the kernel ends all others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

_INSIDE: Final = "MAGNETAR_CHAOS_INSIDE"
_PROGRAMS: Final = ("setpriv", "unshare", "nsenter", "ip", "tc", "mount")
_PREPARED: Final = "mount --make-rprivate / && mount -t tmpfs none /run"


def is_inside() -> bool:
    """Whether this process is in namespaces of its own."""
    return os.environ.get(_INSIDE) == "1"


def _unshared() -> list[str]:
    # When the process that began it is killed, so is `unshare`, and with it everything else.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", "--mount-proc"]
    command += ["--net", "--mount", "--pid"]
    return command if os.geteuid() == 0 else [*command, "--user", "--map-root-user"]


def why_impossible() -> str | None:
    """Why this machine has no such namespaces for us; None when it has."""
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: util-linux, iproute2)"
    made = "ip link add hub type bridge && ip link add trial type veth && tc qdisc add dev trial clsact"
    trial = f"{_PREPARED} && {made}"
    done = subprocess.run([*_unshared(), "sh", "-c", trial], capture_output=True, text=True, check=False)
    return f"no namespaces with a bridge: {done.stderr.strip()[-200:]}" if done.returncode else None


def run_inside(arguments: list[str]) -> int:
    """Runs `python -m chaos` with these arguments in namespaces of its own; returns its exit code."""
    program = [sys.executable, "-m", "chaos", *arguments]
    command = [*_unshared(), "sh", "-c", f'{_PREPARED} && exec "$@"', "sh", *program]
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode
