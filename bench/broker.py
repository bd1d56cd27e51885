"""The broker under measurement: started here for each scenario, or one that already runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

READY_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 30.0
POLL_S: Final = 0.001


class BrokerFailedError(Exception):
    """The broker did not start or did not stop as it should; the text holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """Which core does what; None leaves it to the scheduler."""

    broker: int | None
    generator: int | None


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that accepts connections."""

    service_url: str
    http_url: str
    pid: int | None
    """Root of its process tree; None when it is unknown, and then nothing is said of its costs."""
    exec_s: float | None = None
    """`time.perf_counter` just before exec; None when it was not started here."""
    ready_s: float | None = None
    """Seconds from exec until it said that it is ready."""
    tls_url: str = ""
    """Empty when it has no port with TLS."""
    https_url: str = ""
    """The same of HTTP."""


NO_BYTECODE_VARIABLE: Final = "PYTHONDONTWRITEBYTECODE"
"""With it every start compiles every source anew, which an installed broker never does: it takes as long
again as the rest of the start. A broker under measurement does not inherit it."""

SOURCE_VARIABLE: Final = "MAGNETAR_BENCH_SOURCE"
"""Names a folder `src` whose sources are measured instead of the installed ones."""


def magnetar_command() -> list[str]:
    """`magnetar standalone` of the running environment, or of the sources that SOURCE_VARIABLE names."""
    if source := os.environ.get(SOURCE_VARIABLE):
        python = ["env", f"PYTHONPATH={source}", sys.executable, "-m", "magnetar"]
        return [*python, "standalone", "--port", "0", "--http-port", "0"]
    beside = Path(sys.executable).with_name("magnetar")
    found = str(beside) if beside.exists() else shutil.which("magnetar")
    if not found:
        raise BrokerFailedError(
            "there is no command `magnetar` beside this Python; is the project installed?"
        )
    return [found, "standalone", "--port", "0", "--http-port", "0"]


def discard_command() -> list[str]:
    """The server that stores nothing (bench/discard.py), to find the generator's own limit."""
    return [sys.executable, "-m", "bench.discard"]


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Run the body, and whatever it starts, on one core."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _await_ready(process: subprocess.Popen[bytes], ready: Path) -> dict[str, str | int]:
    deadline = time.perf_counter() + READY_DEADLINE_S
    while time.perf_counter() < deadline:
        try:
            content = json.loads(ready.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            content = None
        if isinstance(content, dict):
            return content
        if process.poll() is not None:
            raise BrokerFailedError(f"the broker ended with code {process.returncode} before it was ready")
        time.sleep(POLL_S)
    raise BrokerFailedError(f"the broker was not ready after {READY_DEADLINE_S:.0f} s")


@contextmanager
def started(
    command: Sequence[str],
    folder: Path,
    cpus: Cpus,
    *,
    stop_signal: signal.Signals = signal.SIGTERM,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """Start `command --data FOLDER/data --ready-file …`, wait until it is ready, stop it after the body.

    `folder`: existing scratch folder; what lies in FOLDER/data from an earlier start stays. `stop_signal`:
    SIGKILL leaves a store that was not closed. `settings`: variables of its environment. Raises
    BrokerFailedError when it does not start, or ends with an error.
    """
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    log = folder / "broker.log"
    full = [*command, "--data", str(folder / "data"), "--ready-file", str(ready)]
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE_VARIABLE}
    environment |= settings or {}
    with log.open("ab") as output:
        with pinned(cpus.broker):
            exec_s = time.perf_counter()
            process = subprocess.Popen(
                full, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
            )
        try:
            content = _await_ready(process, ready)
            yield Broker(
                service_url=str(content["broker_url"]),
                http_url=str(content.get("http_url", "")),
                pid=process.pid,
                exec_s=exec_s,
                ready_s=time.perf_counter() - exec_s,
                tls_url=str(content.get("broker_tls_url", "")),
                https_url=str(content.get("https_url", "")),
            )
            if process.poll() is not None:
                raise BrokerFailedError(f"the broker ended by itself with code {process.returncode}")
        except Exception as error:
            error.add_note(f"the end of the broker's output:\n{_tail(log)}")
            raise
        finally:
            code = _stop(process, stop_signal)
    if stop_signal == signal.SIGTERM and code != 0:
        raise BrokerFailedError(f"the broker ended with code {code} after SIGTERM:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> int:
    if process.poll() is None:
        process.send_signal(stop_signal)
        try:
            return process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailedError(
                f"the broker did not end within {STOP_DEADLINE_S:.0f} s of {stop_signal.name}"
            ) from None
    return process.wait()
