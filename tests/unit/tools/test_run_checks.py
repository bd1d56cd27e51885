"""`./dev check` tells of every check."""

from __future__ import annotations

import pytest
import run_checks


def test_every_check_is_started() -> None:
    assert sorted(run_checks.LONGEST_FIRST) == sorted(run_checks.CHECKS)


def test_all_are_told_in_order_and_one_that_fails_fails_them_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, angry = ["-c", "print('fine')"], ["-c", "import sys; sys.exit('wrong')"]
    monkeypatch.setattr(run_checks, "CHECKS", {"first": angry, "second": content, "third": content})
    monkeypatch.setattr(run_checks, "LONGEST_FIRST", ("third", "second", "first"))
    assert run_checks.main() == 1
    told = capsys.readouterr().out
    assert told.startswith(
        "== first\nwrong\n== second\nfine\n== third\nfine\n== summary\nfirst          FAILED"
    )
    assert told.count("ok") == 2
