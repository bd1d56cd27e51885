"""What a broker loads before its first client is served: each module there is time that every start takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_process("start")

_PROGRAM = """
import json, os, signal, sys
from magnetar.cli.main import main
from magnetar.server.standalone import Standalone

def begin_rest(self):
    json.dump(sorted(sys.modules), open(sys.argv[1], "w"))
    os.kill(os.getpid(), signal.SIGTERM)

Standalone.begin_rest = begin_rest
main(["standalone", "--port", "0", "--http-port", "0", "--data", sys.argv[2]])
"""

_OWN_MAX = 430
"""406 when this was written, 21 of them transactions; 20 came as cores that were split from their drivers,
six as rules that are handed in and as parts of two long modules, nine as judging beside the loop, headers in
a log, and the port of Arrow Flight SQL.
A room that only some need belongs behind an import in a function."""
_ALL_MAX = 686
"""Modules of the standard library and of dependencies too: 665."""
_LATER = {
    "starlette": "the admin service's, loaded when clients are served",
    "uvicorn": "the admin service's",
    "anyio": "the admin service's",
    "h11": "the admin service's",
    "multiprocessing": "helpers are programs of their own",
    "concurrent.futures.process": "as multiprocessing",
    "joserfc": "tokens only",
    "cryptography": "tokens only",
    "passlib": "passwords only",
    "urllib.request": "issuers of tokens only",
    "http.client": "issuers of tokens only",
    "email": "issuers of tokens only",
    "unittest": "tests only",
    "numpy": "Spark only",
    "pyarrow": "Spark only",
    "fastavro": "tests only",
    "magnetar.admin.serving.app": "the admin service's",
    "magnetar.admin.routes": "the admin service's",
    "magnetar.demo": "another program",
    "magnetar.spark": "another program",
}
"""What must not be loaded by then, and why it is not needed."""


def test_a_start_loads_only_what_the_first_client_needs(tmp_path: Path) -> None:
    found = tmp_path / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(found), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        # A plugin that measures coverage, say, would load modules of its own.
        env={name: value for name, value in os.environ.items() if not name.startswith("COV_")},
    )
    assert done.returncode == 0, done.stderr
    modules = set(json.loads(found.read_text()))
    assert {name: why for name, why in _LATER.items() if name in modules} == {}
    # A folder is not a module to load: its own file is empty but for a line of words.
    folders = {name.rpartition(".")[0] for name in modules}
    own = {name for name in modules if name.split(".")[0] == "magnetar"} - folders
    assert len(own) <= _OWN_MAX, f"{len(own)} modules of ours before the port is served"
    loaded = {name for name in modules if name.split(".")[0] != "magnetar"} | own
    assert len(loaded) <= _ALL_MAX, f"{len(loaded)} modules before the port is served"
