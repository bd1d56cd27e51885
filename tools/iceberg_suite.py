"""`./dev compat iceberg`: readers of Iceberg that others wrote, over tables of a standalone of ours.

Makes an environment of its own with PySpark of the version that Spark's Iceberg reader is made for, and with
ClickHouse and DuckDB as libraries (`requirements/iceberg.txt`), then runs `tests/compat/iceberg`. Needs a JDK
of version 17 or newer and Maven.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "requirements" / "iceberg.txt"


def main() -> int:
    """The command; its exit code is that of the tests."""
    python = environment()
    command = [sys.executable, "-m", "pytest", "tests/compat/iceberg", *sys.argv[1:]]
    variables = {**os.environ, "MAGNETAR_ICEBERG_PYTHON": str(python)}
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def environment() -> Path:
    """The interpreter that has the readers; installed when the pinned list is another one than last time."""
    stamp = hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(home) if home.startswith("/") else Path.home() / ".cache"
    folder = cache / "magnetar" / f"iceberg-{stamp}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        tool = ROOT / ".venv" / ".tools" / "bin" / "python"
        uv = [str(tool if tool.exists() else sys.executable), "-m", "uv"]
        subprocess.run(
            [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True
        )
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes"]
        subprocess.run([*install, "-r", str(PINNED)], check=True)
        (folder / ".complete").touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
