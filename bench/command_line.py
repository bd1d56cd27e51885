"""How long does the command take to answer? Each command is a new process, the broker runs beside.

    python -m bench cli                 help, calls of the admin API, a message read, 15 times each
    python -m bench cli --runs 50

Wall time says what a user waits, CPU time what the command itself costs: on a busy machine only the second
one means something. The figures to reach: help 120 ms, an admin call 200 ms.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.broker import Broker, Cpus, magnetar_command, started

TOPIC: Final = "bench-command-line"
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "magnetar --help": ("--help",),
    "magnetar topics --help": ("topics", "--help"),
    "magnetar tenants list": ("tenants", "list"),
    "magnetar topics stats": ("topics", "stats", TOPIC),
    "magnetar brokers health": ("brokers", "health"),
    "magnetar produce, one message": ("produce", TOPIC, "x"),
    "magnetar consume -n 1": ("consume", TOPIC, "-n", "1"),
}


def measure(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one run. Raises subprocess.CalledProcessError."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    with open(os.devnull, "r+b") as nothing:
        subprocess.run(command, env=environment, check=True, stdin=nothing, stdout=nothing, stderr=nothing)
    wall_ms = (time.perf_counter() - began_s) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return wall_ms, cpu_s * 1000


def report(broker: Broker, contexts: Path, runs: int) -> None:
    """Prints a line for each command; `contexts` is a file without any."""
    program = magnetar_command()
    program = program[: program.index("standalone")]
    environment = {
        **os.environ,
        "MAGNETAR_URL": broker.service_url,
        "MAGNETAR_ADMIN_URL": broker.http_url,
        "MAGNETAR_CONTEXTS": str(contexts),
    }
    # The first message makes the topic, and the first run of each command compiles what it imports.
    measure([*program, "produce", TOPIC, "x"], environment)
    print(f"{'':32}{'wall ms':>10}{'worst':>8}{'CPU ms':>8}")
    for name, arguments in COMMANDS.items():
        measure([*program, *arguments], environment)
        found = [measure([*program, *arguments], environment) for _ in range(runs)]
        walls, cpus = zip(*found, strict=True)
        print(f"{name:32}{statistics.median(walls):10.0f}{max(walls):8.0f}{statistics.median(cpus):8.0f}")


def main() -> int:
    """Starts a broker and measures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench cli", description="How long does the command take to answer?"
    )
    parser.add_argument("--runs", type=int, default=15, help="of each command (15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        contexts = Path(folder) / "contexts.json"
        contexts.write_text('{"contexts": {}}')
        with started(magnetar_command(), Path(folder), Cpus(None, None)) as broker:
            report(broker, contexts, options.runs)
    return 0
