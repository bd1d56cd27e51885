"""What a process does that runs one instance of one function. Driver.

It gets its plan over a socket, and ends when that socket is closed. Signal SIGUSR1 makes it write the Python
stacks of all threads to a pipe, also while the user's code never returns.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import gc
import io
import logging
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from magnetar.functions.errors import FunctionError
from magnetar.functions.instance.control import ControlLine
from magnetar.functions.instance.outcome import TRIGGER
from magnetar.functions.instance.plan import InstancePlan
from magnetar.functions.instance.running import Instance, trace_of
from magnetar.functions.instance.working import IDLE_S
from magnetar.functions.workers.confinement import confine

_GC_OBJECTS: Final = 50_000
"""New objects between two collections: messages are freed without them."""


class WorkerLine:
    """Answers the worker between two turns."""

    def __init__(self, line: ControlLine) -> None:
        self._line = line
        self._stopped = False

    @property
    def is_over(self) -> bool:
        """Whether the instance shall end."""
        return self._stopped or self._line.is_over

    @property
    def wait_s(self) -> float:
        """See `Attendant`."""
        return IDLE_S

    def filenos(self) -> list[int]:
        """Descriptors that wake the instance."""
        return [self._line.fileno()]

    def attend(self, instance: Instance) -> None:
        """Answers what was asked."""
        for said in self._line.read():
            asked = said.get("do")
            if asked == "status":
                told = instance.counters.told(instance.function.context.metrics)
                self._line.tell({"is": "status", **told})
            elif asked == "publish":
                self._publish(instance, said)
            elif asked == "stop":
                self._stopped = True

    def _publish(self, instance: Instance, said: Mapping[str, object]) -> None:
        value = base64.b64decode(str(said["value"]))
        instance.publish_to_input(str(said["topic"]), value, {TRIGGER: str(said["trigger"])})

    def triggered(self, trigger: str, value: bytes | None) -> None:
        """A triggered message has this result."""
        shown = None if value is None else base64.b64encode(value).decode()
        self._line.tell({"is": "triggered", "id": trigger, "value": shown})


def _name(plan: InstancePlan) -> None:
    """Lets lists of processes show whose it is."""
    # A system without it shows the interpreter's name.
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"fn {plan.name}", encoding="utf-8")


def run(descriptor: int, stacks: int) -> int:
    """Runs the instance whose plan comes over the socket `descriptor`; `stacks`: where stacks are written.
    Returns the exit code: 0 after a stop, 1 when the function cannot run."""
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    # Ctrl-C in a terminal is for the worker, which stops its instances in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The folder of a package holds what the catalogue put there, and nothing that Python makes of it.
    sys.dont_write_bytecode = True
    # What the code prints is seen at once.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    line = ControlLine(socket.socket(fileno=descriptor))
    plan = InstancePlan.decode(line.first_line())
    _name(plan)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        confine(plan)
        instance = Instance(plan, WorkerLine(line))
    except FunctionError as error:
        line.tell({"is": "failed", "text": str(error)})
        return 1
    gc.enable()
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS, 20, 20)
    line.tell({"is": "running"})
    try:
        instance.run()
    except BaseException as error:
        line.tell({"is": "failed", "text": trace_of(error)})
        raise
    finally:
        instance.close()
        line.close()
    return 0
