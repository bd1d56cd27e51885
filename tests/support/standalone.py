"""A real `magnetar standalone` process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0
ADMIN_DEADLINE_S = 60.0

CLUSTER = "MAGNETAR_TEST_CLUSTER"
"""Variable with the kind of the metadata service when tests run against brokers of a cluster:
`support/serving.py`."""


class _ToTheOwner(HTTPRedirectHandler):
    """Follows calls that a broker leads to another one, whatever their method."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if code == 307:
            return Request(newurl, req.data, dict(req.header_items()), method=req.get_method())
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_FOLLOWING = build_opener(_ToTheOwner())


class StandaloneProcess:
    """Starts the program on free ports with a data folder of its own, stops or kills it."""

    def __init__(
        self,
        folder: Path,
        *,
        ephemeral: bool = False,
        options: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        data_dir: Path | None = None,
        python: str = sys.executable,
        role: str = "standalone",
    ) -> None:
        """`folder` holds the data, the log and the ready file; a later instance may take it over. `python` is
        the interpreter whose package is run.

        `data_dir` is for data elsewhere, `environment` adds variables. `role` is the command, `standalone`,
        `broker` or `proxy`, which has no data.
        """
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.log_path = folder / "standalone.log"
        self.broker_url = ""
        self.http_url = ""
        self._ready_path = folder / "ready.json"
        self._ephemeral = ephemeral
        self._role = role
        self._options = options
        self._python = python
        # Tests wait for history, and a process with a high niceness gets no time when all cores are busy.
        self.environment = {"MAGNETAR_OFFLOAD_NICENESS": "0", **os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> StandaloneProcess:
        """Starts the process and waits until it is ready."""
        assert self._process is None
        assert self._role != "standalone" or not os.environ.get(CLUSTER), (
            "with --cluster no standalone is started: use support.serving, or mark the test one_process"
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready_path.unlink(missing_ok=True)
        place = ["--ephemeral"] if self._ephemeral else ["--data", str(self.data_dir)]
        if self._role == "proxy":
            place = []
        arguments = [
            self._python,
            "-m",
            "magnetar",
            self._role,
            *place,
            "--port",
            "0",
            "--http-port",
            "0",
        ]
        arguments += ["--ready-file", str(self._ready_path), *self._options]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        wait_until(lambda: self._ready_path.exists() or self._process_ended(), START_DEADLINE_S, "ready")
        if not self._ready_path.exists():
            raise AssertionError(f"standalone did not start:\n{self.log_text()}")
        ready = json.loads(self._ready_path.read_text())
        self.broker_url, self.http_url = ready["broker_url"], ready["http_url"]
        return self

    @property
    def http_urls(self) -> list[str]:
        """Addresses of the admin API of all processes that serve."""
        return [self.http_url]

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return not self._process_ended()

    def _process_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def log_text(self) -> str:
        """Everything that the process printed."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def admin(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Any:
        """The answer of an admin call below /admin/v2/, None when it has no body; `body` is sent as JSON.

        Raises urllib.error.HTTPError for a status other than success.
        """
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = Request(f"{self.http_url}/admin/v2/{path}", data, sent, method=method)
        with _FOLLOWING.open(request, timeout=ADMIN_DEADLINE_S) as answer:
            text = answer.read()
            assert text or answer.status == 204, answer.status
        return json.loads(text) if text else None

    def url_of(self, topic: str) -> str:
        """URL of the process that serves a topic, for a client that does not look it up."""
        url = f"{self.http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
        with urlopen(url, timeout=ADMIN_DEADLINE_S) as answer:
            return str(json.load(answer)["brokerUrl"])

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            self._process = None

    def wait(self, deadline_s: float) -> int:
        """Waits until the process has ended by itself; returns the exit code."""
        assert self._process is not None
        code = self._process.wait(deadline_s)
        self._process = None
        return code

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.kill(self._process.pid, signal.SIGABRT)
            self.kill()
            raise AssertionError(f"standalone did not stop:\n{self.log_text()}") from None
        self._process = None
        return code

    def __enter__(self) -> StandaloneProcess:
        return self if self._process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill() if error is not None else self.stop()


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Returns when `condition` holds; raises AssertionError after `deadline_s` seconds."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not {what} within {deadline_s} s")
        time.sleep(0.01)
