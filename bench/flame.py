"""Flame graphs of a broker while it is measured, with the frames of C and of the helper processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from bench.broker import Broker
from bench.flame_svg import render

SAMPLES_PER_S: Final = 200
STOP_S: Final = 30.0
START_S: Final = 2
"""How long a start is looked at."""


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
    command = ["--pid", str(broker.pid), "--subprocesses", "--native", "--rate", str(SAMPLES_PER_S)]
    command += ["--duration", str(max(1, int(seconds)))]

    def sample() -> None:
        time.sleep(after_s)
        _record(command, graph)

    thread = Thread(target=sample, name="flame graph")
    thread.start()
    try:
        yield
    finally:
        thread.join(after_s + seconds + STOP_S)


def profile_start(command: Sequence[str], graph: Path) -> None:
    """The same of a process from its first moment on; it is killed afterwards."""
    _record(["--rate", str(SAMPLES_PER_S), "--duration", str(START_S), "--", *command], graph)


def _record(arguments: Sequence[str], graph: Path) -> None:
    """Runs the sampler; writes `graph` and, as .folded, its stacks. Says why when it does not."""
    graph.parent.mkdir(parents=True, exist_ok=True)
    folded = graph.with_suffix(".folded")
    sampler = str(Path(sys.executable).with_name("py-spy"))
    command = [sampler, "record", "--format", "raw", "--output", str(folded), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  no flame graph: {done.stderr.strip()}", file=sys.stderr, flush=True)
        return
    graph.write_text(render(graph.stem, folded.read_text().splitlines()))
