"""Unused code is found, and exceptions that are not needed any more."""

from __future__ import annotations

from pathlib import Path

import dead_code
import pytest


def test_what_is_dead_and_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (*dead_code.FOLDERS, dead_code.TESTS):
        (tmp_path / folder).mkdir()
    defined = "".join(f"def {name}(): ...\n\n" for name in ("dead", "called", "kept"))
    (tmp_path / "src" / "a.py").write_text(f"{defined}called()\n")
    (tmp_path / "tests" / "test_a.py").write_text("import a\na.dead()\n\ndef idle(): ...\n")
    allowed = {"src/a.py": {"kept": "somebody else calls it", "called": "nobody needs this"}}
    monkeypatch.setattr(dead_code, "ROOT", tmp_path)
    monkeypatch.setattr(dead_code, "ALLOWED", allowed)
    assert dead_code.complaints() == [
        "src/a.py:1: dead is unused, or used by tests alone",
        "dead_code.py: src/a.py needs no exception for called any more",
        "tests/test_a.py:4: idle is unused",
    ]


def test_each_exception_says_why() -> None:
    assert all(reason for allowed in dead_code.ALLOWED.values() for reason in allowed.values())
