"""The same inputs for the compiled twin and the pure one: their answers must be equal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import build_twin

from fuzzing.catalogue import HARNESSES, ROOT, inputs_of
from fuzzing.execution import run

EXECUTIONS: Final = 20_000
"""Number of inputs for each harness."""
NAMES: Final = ("frames", "client-frames", "send", "ack", "metadata", "entry")
"""Harnesses whose parsers are compiled, or use compiled modules."""


def compare(names: list[str], seed: int) -> int:
    """1 when a harness's answers differ, or something was found."""
    chosen = [name for name in names if name in NAMES]
    print(f"seed {seed}, {EXECUTIONS:,} executions of each of {', '.join(chosen)}", flush=True)
    try:
        with build_twin.compiled_copy() as root:
            if not build_twin.is_meant(root):
                return 1
            said = [_digests(root, pure, chosen, seed) for pure in ("", "1")]
    except build_twin.BuildFailedError:
        return 1
    for compiled, pure in zip(*said, strict=True):
        print(f"{compiled}  {'equal' if compiled == pure else 'DIFFERENT: ' + pure}")
    return 0 if said[0] == said[1] and len(said[0]) == len(chosen) else 1


def _digests(root: Path, pure: str, names: list[str], seed: int) -> list[str]:
    environment = {**os.environ, **build_twin.environment_of(root, pure)}
    environment["PYTHONPATH"] += os.pathsep + str(ROOT / "tools")
    command = [sys.executable, "-m", "fuzzing.twins", str(seed), *names]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def main(seed: int, names: list[str]) -> int:
    """In a twin: a line for each harness. 1 when something was found."""
    found = 0
    for name in names:
        harness = HARNESSES[name]
        outcome = run(harness, inputs_of(harness), seed=seed, count_max=EXECUTIONS, seconds=600)
        found += len(outcome.findings)
        print(f"{name:16} {outcome.executions} {outcome.digest[:32]} findings {len(outcome.findings)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
