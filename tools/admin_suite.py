"""`./dev compat pulsar-admin`: Pulsar's own command line tool against a standalone of ours.

Runs the transcripts of `tests/compat/pulsar_admin/commands` and writes what came of them to
`docs/compatibility/pulsar-admin.md`. Needs a JDK of version 17 or newer and Maven.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility" / "pulsar-admin.md"


def main() -> int:
    """The command; its exit code is that of the tests."""
    PAGE.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/compat/pulsar_admin", *sys.argv[1:]]
    environment = {**os.environ, "MAGNETAR_ADMIN_TABLE": str(PAGE)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
