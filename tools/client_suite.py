"""`./dev compat python-client PATH`: the official Python client's own tests against a standalone of ours.

PATH is a checkout of apache/pulsar-client-python. Its tests run unmodified, in a copy of their folder, one
process a case, against a broker that starts from their own configuration. Their addresses are fixed, so
that ports 6650, 6651, 8080 and 8443 must be free. A case that crashes its interpreter after it passed, as
the client sometimes does at exit, is told from one that fails.

Prints one line a case, a table and the cases that did not pass; the exit code is 0 when all others did.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import suite_failover
import suite_services

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
FAILOVER = "auto_cluster_failover_test"
"""Starts two brokers of its own, for which stands in what `suite_failover` gives it."""
IMPOSSIBLE = {
    "oauth2_test": "needs an issuer of tokens in the internet",
}
"""Modules that cannot run, and why."""
WITHOUT_AUTHENTICATION = {
    "asyncio_test.AsyncioTest.test_create_producer_failure": (
        "expects to be told that a tenant does not exist, where a refusal tells nothing"
    ),
}
"""Cases that run against a broker without authentication, and why."""
SILENCE = "pulsar_test.PulsarTest.test_connect_timeout"
"""Connects to an address of the documentation (RFC 5737) and expects that nothing answers for a second. Where
the network refuses at once, the case cannot pass, whatever the broker does."""
SILENT_ADDRESS = ("192.0.2.1", 1234)
CASE_DEADLINE_S = 120
GOOD = ("passed", "crashed at exit", "skipped")
BAD = ("failed", "hung")
_SKIPPED = re.compile(r"^OK \(.*skipped=", re.MULTILINE)


@dataclass
class Results:
    """Outcomes by module, and what a failed case said."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, module: str, case: str, outcome: str, text: str) -> None:
        """Prints the case's line."""
        self.counts.setdefault(module, Counter())[outcome] += 1
        if outcome in BAD:
            self.failures.append((case, text))
        print(f"{outcome:16} {case}", flush=True)

    def table(self) -> str:
        """One line a module, and the total."""
        total: Counter[str] = Counter()
        lines = [f"{'':28}{'cases':>7}{'passed':>8}{'failed':>8}{'skipped':>9}"]
        for module, counts in self.counts.items():
            total += counts
            lines.append(_row(module, counts))
        lines.append(_row("total", total))
        if crashes := total["crashed at exit"]:
            lines.append(f"passed: {crashes} of them with a crash of the client at exit")
        return "\n".join(lines)

    def expected_only(self, expected: set[str]) -> bool:
        """Whether at least one case ran and none failed that is not expected to."""
        return bool(self.counts) and all(case in expected for case, _ in self.failures)


def _row(name: str, counts: Counter[str]) -> str:
    passed, failed = counts["passed"] + counts["crashed at exit"], sum(counts[bad] for bad in BAD)
    return f"{name:28}{counts.total():7}{passed:8}{failed:8}{counts['skipped']:9}"


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


def outcome_of(returncode: int, text: str) -> str:
    """What became of a case, by the exit code of unittest and what it printed."""
    if returncode == 0:
        return "skipped" if _SKIPPED.search(text) else "passed"
    return "crashed at exit" if returncode < 0 and re.search(r"^OK\b", text, re.MULTILINE) else "failed"


def run_case(case: str, folder: Path, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """Its outcome and the end of what it printed."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "unittest", case],
            cwd=folder,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=CASE_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return "hung", f"no end within {CASE_DEADLINE_S} s"
    text = done.stderr.decode(errors="replace")
    return outcome_of(done.returncode, text), text[-2000:]


@contextlib.contextmanager
def copied(checkout: Path) -> Iterator[tuple[Path, Path]]:
    """The suite's folder of tests, copied so that the checkout stays as it is, and a folder for data."""
    if not (checkout / "tests" / "pulsar_test.py").is_file():
        raise SystemExit(
            f"{checkout} is not a checkout of apache/pulsar-client-python: no tests/pulsar_test.py"
        )
    with tempfile.TemporaryDirectory(prefix="magnetar-compat-") as folder:
        tests = Path(folder) / "tests"
        shutil.copytree(checkout / "tests", tests)
        yield tests, Path(folder) / "services"


def is_silent(address: tuple[str, int]) -> bool:
    """Whether nothing answers there for a second, not even the network."""
    try:
        socket.create_connection(address, timeout=1).close()
    except TimeoutError:
        return True
    except OSError:
        pass
    return False


def run(checkout: Path, only: str) -> Results:
    """Runs all cases whose id contains `only`."""
    results = Results()

    def run_all(module: str, environment: dict[str, str] | None = None) -> None:
        for case in cases_of(module, tests):
            if only not in case or case in WITHOUT_AUTHENTICATION:
                continue
            if case == SILENCE and not is_silent(SILENT_ADDRESS):
                results.add(module, case, "skipped", "")
                print(f"{'':16} this network refuses {SILENT_ADDRESS[0]} at once; the case expects silence")
            else:
                results.add(module, case, *run_case(case, tests, environment))

    with copied(checkout) as (tests, services):
        with suite_services.test_service(tests, services / "main"):
            for module in MODULES:
                run_all(module)
        if plain := [case for case in WITHOUT_AUTHENTICATION if only in case]:
            with suite_services.plain_service(tests, services / "plain"):
                for case in plain:
                    results.add(case.partition(".")[0], case, *run_case(case, tests))
        if (tests / f"{FAILOVER}.py").exists():
            run_all(FAILOVER, suite_failover.environment(services / "failover"))
    return results


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="./dev compat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", choices=["python-client"], help="whose tests")
    parser.add_argument("checkout", type=Path, help="a checkout of apache/pulsar-client-python")
    parser.add_argument("--expected", type=Path, help="a file with one case a line that may fail")
    parser.add_argument("--only", default="", help="run cases whose id contains this")
    options = parser.parse_args()
    expected = set(options.expected.read_text().split()) if options.expected else set()
    # Ignored signals are inherited, as by what a shell starts in the background; a case sends itself one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Ends as after Ctrl-C: the brokers are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    results = run(options.checkout, options.only)
    for case, text in results.failures:
        print(f"\n== {case}\n{text.rstrip()}")
    print(f"\n{results.table()}")
    for case, reason in WITHOUT_AUTHENTICATION.items():
        print(f"run without authentication: {case}, which {reason}")
    for module, reason in IMPOSSIBLE.items():
        print(f"not run: {module}, which {reason}")
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if results.expected_only(expected) else 1


if __name__ == "__main__":
    sys.exit(main())
