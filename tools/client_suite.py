"""Runs the official Python client's own tests against a fresh standalone, one process a case.

    .venv/bin/python tools/client_suite.py PATH/TO/pulsar-client-python

The suite's URLs are fixed, so ports 6650 and 8080 must be free. A case that crashes its interpreter, as
some of the client's do at exit, is told from one that fails. Prints one line a case and a summary;
exit code 1 when a case failed that is not listed in --expected.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

MODULES = (
    "reader_test",
    "custom_logger_test",
    "debug_logger_test",
    "interrupted_test",
    "asyncio_test",
    "table_view_test",
    "schema_test",
    "pulsar_test",
)
CASE_DEADLINE_S = 60
READY_DEADLINE_S = 30


def cases_of(module: str, folder: Path) -> list[str]:
    """Ids of a module's cases; the module's own name when it cannot be imported."""
    program = (
        "import sys, unittest\n"
        "def walk(suite):\n"
        "    for each in suite:\n"
        "        walk(each) if isinstance(each, unittest.TestSuite) else print(each.id())\n"
        f"walk(unittest.defaultTestLoader.loadTestsFromName({module!r}))\n"
    )
    listed = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    found = [line for line in listed.stdout.splitlines() if line.startswith(module + ".")]
    return found or [module]


def run_case(case: str, folder: Path) -> str:
    """`passed`, `failed`, `crashed` (after its result was printed as passed) or `hung`."""
    command = [sys.executable, "-m", "unittest", case]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=CASE_DEADLINE_S
        )
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode == 0:
        return "passed"
    text = done.stderr.decode(errors="replace")
    return "crashed at exit" if done.returncode < 0 and text.rstrip().endswith("OK") else "failed"


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A standalone on the suite's ports, with the namespaces that the suite expects."""
    ready = folder / "ready.json"
    environment = {**os.environ, "MAGNETAR_MAX_MESSAGE_BYTES": "1024000"}
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(folder / "data")]
    process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment)
    end = time.monotonic() + READY_DEADLINE_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit("standalone did not start; are ports 6650 and 8080 free?")
        time.sleep(0.05)
    url = json.loads(ready.read_text())["http_url"]
    call = urllib.request.Request(f"{url}/admin/v2/namespaces/public/default-2", method="PUT")
    urllib.request.urlopen(call, timeout=10).close()
    return process


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a checkout of apache/pulsar-client-python")
    parser.add_argument("--expected", type=Path, help="a file with one case a line that may fail")
    parser.add_argument("--only", default="", help="run cases whose id contains this")
    options = parser.parse_args()
    tests = options.checkout / "tests"
    expected = set(options.expected.read_text().split()) if options.expected else set()
    counts: dict[str, int] = {}
    surprises = []
    with tempfile.TemporaryDirectory() as folder:
        process = start(Path(folder))
        try:
            for module in MODULES:
                for case in cases_of(module, tests):
                    if options.only not in case:
                        continue
                    outcome = run_case(case, tests)
                    counts[outcome] = counts.get(outcome, 0) + 1
                    if outcome in ("failed", "hung") and case not in expected:
                        surprises.append(case)
                    print(f"{outcome:16} {case}", flush=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
