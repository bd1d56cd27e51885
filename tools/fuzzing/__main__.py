"""`./dev fuzz [HARNESS]…`: bytes of chance for every parser; ends with 1 when one did what it must not.

A harness runs in a process of its own, so that a crash of a library is a finding as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from fuzzing import guided, live, twins
from fuzzing.catalogue import CORPUS, HARNESSES, ROOT, inputs_of
from fuzzing.execution import run

COUNTS: Final = Path(__file__).parent / "counts.jsonl"
"""Executions that were done by hand: harness, seconds, executions, findings, how."""
_START_S: Final = 120
"""For a process to begin and to end, beside its time."""


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    known = ", ".join((*HARNESSES, f"{live.NAME}: at a broker that runs, not by itself"))
    parser.add_argument("harnesses", nargs="*", metavar="HARNESS", help=known)
    parser.add_argument("--seconds", type=float, default=10, help="for each harness [10]")
    parser.add_argument("--seed", type=int, help="of chance [a new one]")
    parser.add_argument("--guided", action="store_true", help="by coverage, with atheris (Linux)")
    parser.add_argument("--twins", action="store_true", help="the same inputs for both twins")
    parser.add_argument("--keep", action="store_true", help="findings go into the corpus")
    parser.add_argument("--count", action="store_true", help=f"executions go into {COUNTS.name}")
    parser.add_argument("--child", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.harnesses if name not in HARNESSES and name != live.NAME]
    if unknown:
        parser.error(f"no harness {', '.join(unknown)}; there are {', '.join(HARNESSES)}")
    names = options.harnesses or list(HARNESSES)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    if options.child is not None:
        return child(names[0], seed, options.seconds, options.child)
    if options.twins:
        return twins.compare(names, seed)
    print(f"seed {seed}", flush=True)
    failed = executions = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="magnetar-fuzz-") as folder:
            if name == live.NAME:
                result = live.run(options.seconds, seed)
            elif options.guided:
                result = guided.run(name, options.seconds, Path(folder))
            else:
                result = parent(name, seed, options.seconds, Path(folder))
            say(name, result)
            executions += result["executions"]
            failed += bool(result["findings"])
            if options.keep and name in HARNESSES:
                keep(name, [bytes.fromhex(data) for data, _ in result["findings"]])
            if options.count:
                count(name, result, "guided" if options.guided else "chance")
    print(f"{executions:,} executions, {failed} of {len(names)} harnesses with findings")
    return 1 if failed else 0


def parent(name: str, seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Runs a harness in a child."""
    command = [sys.executable, "-m", "fuzzing", name, "--child", str(folder)]
    command += ["--seed", str(seed), "--seconds", str(seconds)]
    try:
        code = subprocess.run(command, cwd=ROOT, check=False, timeout=seconds + _START_S).returncode
        reason = f"the process ended with {code}"
    except subprocess.TimeoutExpired:
        reason = "the process did not end"
    done = folder / "result.json"
    if done.exists():
        result: dict[str, Any] = json.loads(done.read_text())
        return result
    last = (folder / "input").read_bytes() if (folder / "input").exists() else b""
    return {"executions": 0, "findings": [(last.hex(), reason)]}


def child(name: str, seed: int, seconds: float, folder: Path) -> int:
    """One harness, here; what came of it is in the folder, and the input under way too."""
    harness = HARNESSES[name]
    with (folder / "input").open("wb", buffering=0) as current:

        def note(data: bytes) -> None:
            os.pwrite(current.fileno(), data, 0)
            os.ftruncate(current.fileno(), len(data))

        outcome = run(harness, inputs_of(harness), seed=seed, count_max=1 << 60, seconds=seconds, note=note)
    findings = [(data.hex(), reason) for data, reason in outcome.findings]
    if outcome.grown_bytes > harness.memory_bytes_max:
        findings.append(("", f"the process grew by {outcome.grown_bytes:,} bytes"))
    result = {
        "executions": outcome.executions,
        "refused": outcome.refused,
        "slowest_ms": round(1_000 * outcome.slowest_s, 1),
        "grown_bytes": outcome.grown_bytes,
        "findings": findings,
    }
    (folder / "result.json").write_text(json.dumps(result))
    return 0


def say(name: str, result: dict[str, Any]) -> None:
    """One line, and one for each finding."""
    rest = ", ".join(
        f"{key} {value}" for key, value in result.items() if key not in ("executions", "findings")
    )
    print(f"{name:20} {result['executions']:>12,} executions  {rest}", flush=True)
    for data, reason in result["findings"]:
        print(f"    {reason}\n    bytes.fromhex({data!r})", flush=True)


def keep(name: str, inputs: list[bytes]) -> None:
    """Puts inputs into the corpus; their files are to be renamed after the cause."""
    folder = CORPUS / name
    for data in inputs:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def count(name: str, result: dict[str, Any], how: str) -> None:
    """Notes how much was tried."""
    row = {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "harness": name,
        "how": how,
        "executions": result["executions"],
        "findings": len(result["findings"]),
    }
    with COUNTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
