"""Which tests run against three brokers: each of the others has a reason that is known, and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import cluster_tests

from support.serving import ONE_PROCESS

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_has_a_row_for_each_reason() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    section = page.partition("## One process and three brokers")[2].partition("\n## ")[0]
    assert set(re.findall(r"\| `(\w+)` \|.*\| \d+ \|", section)) == set(ONE_PROCESS)


def test_the_page_counts_the_tests_of_today() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    section = page.partition("## One process and three brokers")[2].partition("\n## ")[0]
    counts = cluster_tests.counted(ROOT)
    rows = re.findall(r"\| `(\w+)` \|.*\| (\d+) \|", section)
    assert {name: int(count) for name, count in rows} == {name: counts[name] for name in ONE_PROCESS}
    assert f"have {sum(counts.values())} tests. {counts['']} of them" in section


def test_every_reason_is_known() -> None:
    assert set(cluster_tests.counted(ROOT)) <= {"", *ONE_PROCESS}


def test_marks_are_read_from_files_and_functions(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "compat"
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text(
        "import pytest\n"
        "def test_runs(): ...\n"
        "@pytest.mark.slow\n"
        "@pytest.mark.one_process('kills')\n"
        "def test_kills(): ...\n"
    )
    (folder / "test_b.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.slow, pytest.mark.one_process('folder')]\n"
        "def test_one(): ...\n"
        "@pytest.mark.one_process('start')\n"
        "def test_two(): ...\n"
    )
    assert cluster_tests.counted(tmp_path) == {"": 1, "kills": 1, "folder": 1, "start": 1}
