"""Runs a command and waits for every process that it leaves, so that their CPU time counts as the command's.

    python tools/adopting.py COMMAND...

Spark's JVM outlives the Python that started it, and the system gives it to process 1: what it used, most of
what a test with Spark costs, would be in no sum. Here this process stands in for process 1. Where the system
has no such thing (it is Linux's), what the command leaves is not counted. The exit code is the command's;
128 and the signal's number when a signal ended it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Final

SET_CHILD_SUBREAPER: Final = 36
"""Of prctl(2)."""
LEFT_S: Final = 10.0
"""How long what is left may take to end."""
LOOK_S: Final = 0.05


def adopt() -> None:
    """From here on the processes below this one whose parents end are its own."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(command: list[str]) -> int:
    """Runs the command to its end, and what it leaves to theirs."""
    adopt()
    # An interruption reaches the command as well, and ends it. It would inherit that a signal is ignored, and
    # does not inherit a handler.
    signal.signal(signal.SIGINT, lambda *_: None)
    first = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == first.pid:
            break
    code = os.waitstatus_to_exitcode(status)
    first.returncode = code
    end = time.monotonic() + LEFT_S
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            time.sleep(LOOK_S)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
