"""`./dev docs check`: the tests that hold documents and generated lists against the code.

All of them belong to the stage `fast` of `./dev test` too, so CI runs them. What documents tell a reader to
do is followed by `tests/e2e/test_documents_followed.py`, which needs minutes.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

DOCUMENT_TESTS: Final = (
    "tests/unit/test_documents.py",
    "tests/unit/test_architecture.py",
    "tests/unit/test_glossary.py",
    "tests/unit/test_errors.py",
    "tests/unit/test_figures.py",
    "tests/unit/test_known_bugs_table.py",
    "tests/unit/test_plain_english.py",
    "tests/unit/test_tidy.py",
    "tests/unit/admin/test_docs.py",
    "tests/unit/admin/policies/test_policies_listed.py",
    "tests/unit/cli/test_reference.py",
    "tests/unit/observability/test_catalogue.py",
    "tests/unit/server/settings/test_config.py",
    "tests/unit/server/settings/test_settings_table.py",
    "tests/unit/tools/test_monitoring.py",
)


def main() -> int:
    """Runs them in the project's root; the exit code is pytest's."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *DOCUMENT_TESTS], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
