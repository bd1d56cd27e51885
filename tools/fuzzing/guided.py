"""Fuzzing that is guided by coverage: atheris (libFuzzer) in a process of its own.

It is installed beside the environment when it is first asked for, pinned by requirements/fuzz.txt, as its
wheels are for Linux alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from fuzzing.catalogue import HARNESSES, ROOT, inputs_of

LIBRARIES: Final = ROOT / ".venv" / "fuzz"
GROWN: Final = ROOT / ".venv" / "fuzz-corpus"
"""Inputs that reached something new, a folder for each harness: the next run begins with them."""
_DONE: Final = re.compile(r"^Done (\d+) runs|^#(\d+)\s", re.MULTILINE)
_MEGABYTES_MAX: Final = 2_048
"""Most megabytes of memory of a process, with the corpus that libFuzzer keeps."""
_START_S: Final = 180
_HANGS_S: Final = 300
"""Seconds after which an input hangs, on a machine that may be busy."""


def install() -> None:
    """Installs atheris, once. Raises CalledProcessError."""
    if (LIBRARIES / "atheris").is_dir():
        return
    uv = [str(ROOT / ".venv" / ".tools" / "bin" / "python"), "-m", "uv", "pip", "install", "--quiet"]
    uv += [
        "--python",
        sys.executable,
        "--target",
        str(LIBRARIES),
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    subprocess.run([*uv, "-r", str(ROOT / "requirements" / "fuzz.txt")], check=True)


def run(name: str, seconds: float, folder: Path) -> dict[str, Any]:
    """What came of a harness."""
    install()
    corpus, found = GROWN / name, folder / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir()
    for number, data in enumerate(inputs_of(HARNESSES[name])):
        (corpus / f"seed-{number}").write_bytes(data)
    paths = os.pathsep.join((str(ROOT / "tools"), str(LIBRARIES)))
    command = [sys.executable, "-m", "fuzzing.guided_process", name, str(corpus)]
    command += [f"-max_total_time={int(seconds)}", f"-artifact_prefix={found}/", "-print_final_stats=0"]
    command += [
        f"-max_len={HARNESSES[name].input_bytes_max}",
        f"-rss_limit_mb={_MEGABYTES_MAX}",
        f"-timeout={_HANGS_S}",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds + _START_S,
    )
    said = done.stdout.decode("utf-8", "replace")
    runs = [int(one or other) for one, other in _DONE.findall(said)]
    reason = next((line for line in said.splitlines() if "Error: " in line or "ERROR: " in line), said[-300:])
    findings = [(path.read_bytes().hex(), reason) for path in sorted(found.iterdir())]
    if done.returncode and not findings:
        findings = [("", f"the process ended with {done.returncode}: {said[-600:]}")]
    return {"executions": max(runs, default=0), "inputs": len(list(corpus.iterdir())), "findings": findings}
