"""`./dev compat bookkeeper [--minutes M] [--seed S]`: with Apache BookKeeper, the long form.

What it does is in `tests/support/bookkeeper_long.py`. Needs a JDK of version 17 or newer and Maven.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """The command; its exit code is that of the stories."""
    command = [sys.executable, "-m", "support.bookkeeper_long", *sys.argv[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
