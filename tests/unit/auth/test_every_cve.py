"""Each CVE of Pulsar's and BookKeeper's, and of the classes behind them, has a test: `cves.txt` names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[2]
ROWS: Final = [line.split() for line in Path(__file__).with_name("cves.txt").read_text().splitlines()]
SECURITY: Final = (TESTS.parent / "docs" / "security.md").read_text()
BY_NAME: Final = re.compile(r"CVE-\d{4}-\d+|(?<=cve_)\d{4}_\d+")


def test_each_cve_has_a_test() -> None:
    for cve, test in ROWS:
        file, _, function = test.partition("::")
        there = re.search(rf"^ *(async )?def {function}\(", (TESTS / file).read_text(), re.MULTILINE)
        assert there, f"{cve}: {test} is gone"


def test_the_page_of_security_counts_them() -> None:
    assert f"{len({cve for cve, _ in ROWS})} CVEs" in SECURITY


def test_what_a_test_names_stands_in_the_list() -> None:
    listed = {cve for cve, _ in ROWS}
    for name in (
        "unit/admin/access/test_pulsar_cves.py",
        "unit/auth/test_pulsar_cves_of_connections.py",
        "unit/wire/test_protobuf_cves.py",
    ):
        found = BY_NAME.findall((TESTS / name).read_text())
        named = {each if each.startswith("CVE") else f"CVE-{each.replace('_', '-')}" for each in found}
        assert named
        assert named <= listed
