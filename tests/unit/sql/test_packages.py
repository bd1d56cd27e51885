"""Without the extra, the command says which packages are missing, and does not end in a traceback."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.util, sys
hidden = set(sys.argv[1].split(","))
there = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in hidden else there(name, package)
for name in hidden:
    sys.modules[name] = None
from magnetar.cli.main import main
main(["sql", "--url", "pulsar://127.0.0.1:1", sys.argv[2]])
"""


def test_the_command_names_what_is_missing() -> None:
    for missing, statement in (("duckdb,pyarrow,numpy,cramjam", "SELECT 1"), ("pyarrow", "SHOW TOPICS")):
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, missing, statement], capture_output=True, text=True, check=False
        )
        assert found.returncode == 1
        expected = missing.replace(",", ", ")
        assert found.stderr == f"magnetar: SQL needs {expected}: pip install '.[sql]' in a clone\n"
