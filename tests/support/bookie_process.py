"""Real `magnetar bookie` processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from support.object_stores import free_port
from support.standalone import wait_until

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 30.0
SESSION_TIMEOUT_S = 6.0
"""How long a killed bookie is taken for alive."""


class BookieProcess:
    """One bookie with a port and a data folder of its own, which it keeps over restarts."""

    def __init__(self, folder: Path, metadata: str, *options: str) -> None:
        """`folder` holds data, log and ready file; `metadata` is the URL of the cluster."""
        self.folder = folder
        self.port = free_port()
        self.bookie_id = f"127.0.0.1:{self.port}"
        self._metadata = metadata
        self._options = options
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts the process and does not wait."""
        assert self._process is None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "magnetar", "bookie", "--metadata", self._metadata, "--initialize"]
        command += ["--data", str(self.folder / "data"), "--port", str(self.port)]
        # Tests must also pass on a machine with an almost full disk.
        command += ["--disk-usage-threshold", "0.99"]
        command += ["--ready-file", str(self._ready), "--session-timeout", str(SESSION_TIMEOUT_S)]
        with (self.folder / "bookie.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Waits until it serves."""
        process = self._process
        assert process is not None
        wait_until(
            lambda: self._ready.exists() or process.poll() is not None, START_DEADLINE_S, "a bookie is ready"
        )
        assert self._ready.exists(), f"the bookie did not start:\n{self.log_text()}"
        assert json.loads(self._ready.read_text())["bookie_id"] == self.bookie_id

    @property
    def pid(self) -> int:
        """Process id of the bookie."""
        assert self._process is not None
        return self._process.pid

    def log_text(self) -> str:
        """The whole log of the bookie."""
        return (self.folder / "bookie.log").read_text(errors="replace")

    def kill(self) -> None:
        """Kills the process, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Asks the process to end; returns its exit code. Does nothing when it does not run."""
        return 0 if self._process is None else self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(how)
        return process.wait(STOP_DEADLINE_S)
