"""The process of which instances are copies: it has loaded what an instance needs, and forks. Driver.

An instance begins within milliseconds so, and shares the memory of the modules with all others. This process
runs no code of users, holds no connection and no token; each copy confines itself before it loads code.

| From the worker, a packet each | |
|---|---|
| `fork`, with three descriptors | a copy runs `instance_program` with its line, its stacks and its output |

| To the worker | |
|---|---|
| `{"pid": P}` | the copy is there; 0: it could not be made, with `error` |
| `{"ended": P, "code": C}` | it has ended; of one that a signal ended the negative number of that |

It ends when the worker's end is closed; its copies end by the end of their own lines.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import traceback
from typing import Final

from magnetar.functions.workers import instance_program

_LOADED: Final = (
    "asyncio.unix_events",
    "magnetar.adminclient.http",
    "magnetar.functions.instance.log_topic",
    "magnetar.functions.instance.deduplication",
    "magnetar.functions.instance.running",
    "magnetar.functions.sdk.official_names",
    "magnetar.functions.workers.landlock",
    "sqlite3",
    "ssl",
    "uuid",
)
"""What an instance imports at some time."""
_PACKET_BYTES: Final = 256
DESCRIPTORS: Final = 3
"""Line, stacks and output of a copy."""


class ForkServer:
    """Makes copies, and tells of their ends."""

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def run(self) -> None:
        """Serves until the worker is gone. In a copy it does not return."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        watch = select.poll()
        watch.register(self._worker, select.POLLIN)
        watch.register(self._woken, select.POLLIN)
        while True:
            for descriptor, _ in watch.poll():
                if descriptor == self._woken:
                    with contextlib.suppress(BlockingIOError):  # one wake-up may stand for several
                        os.read(self._woken, _PACKET_BYTES)
                    self._reap()
                elif not self._serve():
                    return

    def _serve(self) -> bool:
        packet, descriptors, _, _ = socket.recv_fds(self._worker, _PACKET_BYTES, DESCRIPTORS)
        if not packet:
            return False
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"pid": 0, "error": error.strerror or "fork failed"})
        else:
            if not pid:
                self._become(descriptors)
            self._tell({"pid": pid})
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # There is no copy.
                return
            if not pid:
                return
            self._tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, what: dict[str, object]) -> None:
        # A worker that is gone is seen at the next read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._worker.send(json.dumps(what).encode())

    def _become(self, descriptors: list[int]) -> None:
        """The rest of a copy's life."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._woken, self._wake):
                os.close(end)
            self._worker.close()
            line, stacks, output = descriptors
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            # Ctrl-C in a terminal is for the server, which stops all in order.
            os.setsid()
            # A copy has the state of its original: all would draw the same numbers.
            random.seed()
            code = instance_program.run(line, stacks)
        except BaseException:  # noqa: BLE001  # its end is told by its output and its code
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # the code may have closed it
                    stream.flush()
            os._exit(code)


def main() -> int:
    """0 after the worker's end."""
    for name in _LOADED:
        importlib.import_module(name)
    worker = socket.socket(fileno=int(sys.argv[1]))
    # Pages of what is there stay shared while no collection writes into them.
    gc.collect()
    gc.disable()
    gc.freeze()
    ForkServer(worker).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
