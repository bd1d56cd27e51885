"""The official Go client, unmodified, against a real standalone.

One program of ours (`driver/`) runs all scenarios at once; each is a test here. What is needed: Go, and once
a proxy that it can fetch modules from.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

DRIVER = Path(__file__).parent / "driver"
DEADLINE_S = 240
SCENARIOS = re.findall(r'\tadd\("([^"]+)"', (DRIVER / "scenarios.go").read_text(encoding="utf-8"))


def called(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=DRIVER, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=DEADLINE_S
    )


@pytest.fixture(scope="module")
def outcomes(standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each scenario with the reason of its failure, "" when it passed."""
    if shutil.which("go") is None:
        pytest.skip("no Go client: go is not installed")
    program = tmp_path_factory.mktemp("go") / "driver"
    # Lists what is built, and fetches no more than that.
    fetched = called("go", "list", "-deps", ".")
    if fetched.returncode:
        pytest.skip(f"no Go client: its modules cannot be fetched: {fetched.stderr.strip()[-200:]}")
    built = called("go", "build", "-o", str(program), ".")
    assert built.returncode == 0, built.stderr
    ran = called(str(program), standalone.broker_url, standalone.http_url)
    found = {}
    for line in ran.stdout.splitlines():
        if line.startswith("ok "):
            found[line.removeprefix("ok ")] = ""
        elif line.startswith("failed "):
            name, _, reason = line.removeprefix("failed ").partition(": ")
            found[name] = reason
    assert found, f"the driver printed nothing:\n{ran.stderr}"
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    reason = outcomes.get(scenario, "it did not end")
    assert not reason, reason
