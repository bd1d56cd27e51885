"""Flame graphs of a broker while it is measured, with the frames of C and of the helper processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from bench.broker import Broker

SAMPLES_PER_S: Final = 200
STOP_S: Final = 30.0


def slug(*names: str) -> str:
    """A file name of some names."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in names)


@contextmanager
def profiled(broker: Broker, graph: Path | None, *, after_s: float, seconds: float) -> Iterator[None]:
    """Sample the broker's process tree for `seconds`, from `after_s` into the body on; not without `graph`.

    The sampler stops the broker for moments and takes time of its core: such a run gives no figures.
    """
    if graph is None or broker.pid is None:
        yield
        return
    graph.parent.mkdir(parents=True, exist_ok=True)
    sampler = Path(sys.executable).with_name("py-spy")
    command = [str(sampler), "record", "--pid", str(broker.pid), "--subprocesses", "--native"]
    command += ["--rate", str(SAMPLES_PER_S), "--duration", str(max(1, int(seconds)))]
    command += ["--format", "flamegraph", "--output", str(graph)]

    def sample() -> None:
        time.sleep(after_s)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  no flame graph: {done.stderr.strip()}", file=sys.stderr, flush=True)

    thread = Thread(target=sample, name="flame graph")
    thread.start()
    try:
        yield
    finally:
        thread.join(after_s + seconds + STOP_S)
