"""`./dev check`: ruff, mypy --strict, import-linter, dead code: all of them even when one finds something."""

from __future__ import annotations

import subprocess
import sys
import time

# Not the console script: its first line cannot hold a path with spaces.
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"

CHECKS = {
    "ruff": ["-m", "ruff", "check", "."],
    "mypy": ["-m", "mypy"],
    "mypy, tests": ["-m", "mypy", "--config-file", "tests/mypy.ini"],
    "import-linter": ["-c", LINT_IMPORTS, "--no-logo"],
    "dead code": ["tools/dead_code.py"],
}


def main() -> int:
    """Runs every check in the project's root; the exit code is 0 when all are content."""
    outcomes = []
    for name, arguments in CHECKS.items():
        print(f"== {name}", flush=True)
        started = time.monotonic()
        code = subprocess.run([sys.executable, *arguments], check=False).returncode
        outcomes.append((name, code, time.monotonic() - started))
    print("== summary")
    for name, code, seconds in outcomes:
        print(f"{name:14} {'ok' if code == 0 else 'FAILED'} {seconds:6.1f} s")
    return int(any(code for _, code, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
