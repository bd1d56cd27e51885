"""Measuring programs that are modules of their own, run as scenarios.

Such a module is called as

    python -m MODULE [ARGUMENT] --seconds S [--service-url URL --http-url URL --broker-pid PID] --json FILE

and writes one JSON object to FILE; its numbers become metrics (an object inside becomes metrics with its name
as prefix). What it prints is shown when it fails. One that does not exist is left out with a note.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.broker import Broker

TIMEOUT_S: Final = 900.0


class ModuleFailedError(Exception):
    """A measuring program ended with an error; the text holds the end of its output."""


def exists(module: str) -> bool:
    """The module can be run."""
    return importlib.util.find_spec(module) is not None


def flatten(content: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """All numbers of nested objects, names joined by an underscore; anything else is left out."""
    out: dict[str, float] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            out |= flatten(value, f"{prefix}{name}_")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            out[f"{prefix}{name}"] = float(value)
    return out


def run(
    module: str, broker: Broker | None, *, argument: str = "", seconds: float, folder: Path
) -> dict[str, float]:
    """Run one program and read its numbers; raises ModuleFailedError."""
    result = folder / "result.json"
    command = [
        sys.executable,
        "-m",
        module,
        *filter(None, [argument]),
        "--seconds",
        str(seconds),
        "--json",
        str(result),
    ]
    if broker:
        command += ["--service-url", broker.service_url, "--http-url", broker.http_url]
        if broker.pid:
            command += ["--broker-pid", str(broker.pid)]
    return call(command, result)


def call(command: list[str], result: Path | None) -> dict[str, float]:
    """Run a command; its numbers are in the JSON file `result`, or on standard output when that is None."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModuleFailedError(f"{command[2]} did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ModuleFailedError(f"{command[2]} ended with code {done.returncode}:\n{tail}")
    return flatten(json.loads(result.read_text() if result else done.stdout))
