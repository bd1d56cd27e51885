"""The official Go client: its modules, fetched on first use and checked by Go against go.sum, and the driver
of ours that runs scenarios with it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from support.drivers import NotHereError, outcomes_of
from support.java_client import cache_home

HERE = Path(__file__).parents[1] / "compat" / "go" / "driver"
FETCH_DEADLINE_S = 120
BUILD_DEADLINE_S = 900
"""From nothing it takes 100 s of processor time, on a busy machine of two cores some minutes."""
RUN_DEADLINE_S = 300


def _called(*command: str, deadline_s: float) -> subprocess.CompletedProcess[str]:
    """Raises subprocess.TimeoutExpired; nothing that was started is left."""
    # A newer toolchain than the one that is here is not fetched.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    with subprocess.Popen(
        command,
        cwd=HERE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            # With the compilers that it started, which hold the pipes.
            os.killpg(process.pid, 9)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def program() -> Path:
    """The driver, built once for each state of its sources and each version of Go. Raises NotHereError."""
    if shutil.which("go") is None:
        raise NotHereError("go is not installed")
    version = _called("go", "env", "GOVERSION", deadline_s=FETCH_DEADLINE_S).stdout
    state = hashlib.sha256(version.encode())
    for source in sorted(HERE.iterdir()):
        state.update(source.name.encode() + source.read_bytes())
    built = cache_home() / f"go-driver-{state.hexdigest()[:12]}"
    if not built.exists():
        _build(built)
    return built


def _build(target: Path) -> None:
    try:
        # Lists what is built, and fetches no more than that.
        fetched = _called("go", "list", "-deps", ".", deadline_s=FETCH_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise NotHereError(f"its modules were not fetched within {FETCH_DEADLINE_S} s") from None
    if fetched.returncode:
        raise NotHereError(f"its modules cannot be fetched: {fetched.stderr.strip()[-200:]}")
    # Under a name of its own first: another run may be doing the same.
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        built = _called("go", "build", "-o", str(unfinished), ".", deadline_s=BUILD_DEADLINE_S)
        assert built.returncode == 0, built.stderr
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def run_driver(*arguments: str) -> dict[str, str]:
    """Each scenario with the reason of its failure, "" when it passed. Raises NotHereError."""
    ran = _called(str(program()), *arguments, deadline_s=RUN_DEADLINE_S)
    found = outcomes_of(ran.stdout, ran.stderr)
    return {name: found.get(name, f"it did not end:\n{ran.stderr}") for name in scenarios()}


def scenarios(files: str = "*.go") -> list[str]:
    """Names of the driver's scenarios, in these files of it."""
    texts = [source.read_text(encoding="utf-8") for source in sorted(HERE.glob(files))]
    return [name for text in texts for name in re.findall(r'\tadd\("([^"]+)"', text)]
