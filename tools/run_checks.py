"""`./dev check`: ruff, mypy --strict, import-linter, dead code: all of them even when one finds something.

Two run at a time. What a check says comes when it and those before it have ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

# Not the console script: its first line cannot hold a path with spaces.
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"

CHECKS: Final = {
    "ruff": ["-m", "ruff", "check", "."],
    "mypy": ["-m", "mypy"],
    # With other options mypy would throw the first one's cache away, and that one its own the next time.
    "mypy, tests": ["-m", "mypy", "--config-file", "tests/mypy.ini", "--cache-dir", ".mypy_cache/tests"],
    "import-linter": ["-c", LINT_IMPORTS, "--no-logo"],
    "dead code": ["tools/dead_code.py"],
}
LONGEST_FIRST: Final = ("mypy", "mypy, tests", "dead code", "import-linter", "ruff")
"""The order in which they start."""
AT_A_TIME: Final = 2


class Outcome(NamedTuple):
    """How a check ended."""

    code: int
    """0: it is content."""
    said: str
    seconds: float


def main() -> int:
    """Runs every check in the project's root; the exit code is 0 when all are content."""
    outcomes = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = {name: pool.submit(run, CHECKS[name]) for name in LONGEST_FIRST}
        for name in CHECKS:
            print(f"== {name}", flush=True)
            outcome = running[name].result()
            print(outcome.said, end="", flush=True)
            outcomes.append((name, outcome))
    print("== summary")
    for name, outcome in outcomes:
        print(f"{name:14} {'ok' if outcome.code == 0 else 'FAILED'} {outcome.seconds:6.1f} s")
    return int(any(outcome.code for _, outcome in outcomes))


def run(arguments: list[str]) -> Outcome:
    """Runs one check with this interpreter to its end."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return Outcome(done.returncode, done.stdout, time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
