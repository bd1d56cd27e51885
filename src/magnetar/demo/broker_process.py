"""The tour's own broker: `magnetar standalone` as a child process on free ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from magnetar.demo.errors import DemoError
from magnetar.demo.topics import DemoCluster

_COMMAND = """
import os, signal, sys, threading

def end_with_the_tour():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_tour, daemon=True).start()
from magnetar.cli.main import main
sys.exit(main())
"""
"""The child's program. Its pipe closes when the tour ends in any way; then the broker stops too."""
_READY_S = 30.0
_DRAIN_S = 15.0


class BrokerStartError(DemoError):
    """The broker did not start; the message ends with the last lines of its log."""


class BrokerProcess:
    """A broker with its data and its log below `folder`, from construction until `stop`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "broker.log"
        self.data = folder / "broker"
        self._ready_file = folder / "broker.json"
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-c", _COMMAND, "standalone", "--data", str(self.data)]
        command += ["--port", "0", "--http-port", "0", "--ready-file", str(self._ready_file)]
        # The tour's results are examined later, when no client is connected any more.
        environment = {**os.environ, "MAGNETAR_INACTIVE_TOPIC_DELETION": "false"}
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C in the terminal must reach the tour alone, which stops Spark before
            # the broker; in the other order, every query would fail at its end.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_ready(self, stop: threading.Event) -> DemoCluster:
        """Waits until the broker accepts messages, and returns its addresses. Raises BrokerStartError."""
        deadline = time.monotonic() + _READY_S
        while not stop.is_set():
            if self._process.poll() is not None:
                raise BrokerStartError(
                    f"the broker exited with {self._process.returncode}:\n{self._last_words()}"
                )
            try:
                ready = json.loads(self._ready_file.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                if time.monotonic() > deadline:
                    raise BrokerStartError(
                        f"the broker is not ready after {_READY_S:.0f} s:\n{self._last_words()}"
                    ) from None
                stop.wait(0.02)
                continue
            return DemoCluster(ready["broker_url"], ready["http_url"])
        raise BrokerStartError("stopped while the broker was starting")

    def cpu_s(self) -> float | None:
        """CPU seconds it has used so far, user and system; None on a system without /proc."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return None
        ticks_per_s = 100  # USER_HZ, fixed by the kernel's interface
        return (int(fields[11]) + int(fields[12])) / ticks_per_s

    def stop(self) -> int:
        """Stops the broker in order, or kills it after a timeout; returns its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_DRAIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code

    def _last_words(self) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
        except OSError:
            return "(no log)"
