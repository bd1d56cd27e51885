"""Schemathesis, a test program of its own, reads the served OpenAPI document and calls every operation."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.serving import serving
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
CONFIGURATION = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501, 503]
"""
"""501 is what this broker does not offer, and says so; 503 a topic that another call deletes meanwhile."""
DEADLINE_S = 150


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with serving(tmp_path / "standalone", ephemeral=True) as process:
        yield process


@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="Schemathesis is not installed")
def test_no_operation_answers_otherwise_than_the_document_says(
    process: StandaloneProcess, tmp_path: Path
) -> None:
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration), "--no-color"]
    command += ["run", f"{process.http_url}/openapi.json", "--phases", "fuzzing", "--max-examples", "1"]
    command += ["--generation-deterministic", "--workers", "2"]
    # Publishes and waits for what it published: two seconds of every call.
    command += ["--exclude-path", "/admin/v2/brokers/health"]
    command += [part for check in CHECKS for part in ("--checks", check)]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "Tested: " in ran.stdout
