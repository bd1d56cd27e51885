"""Which tests run for which words."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def run_tests() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "run_tests.py"
    spec = importlib.util.spec_from_file_location("run_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_selection(run_tests: ModuleType) -> None:
    def names(*words: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(stage.name, stage.folders) for stage in run_tests.selected(list(words))]

    assert [name for name, _ in names()] == ["fast", "integration", "compat", "spark", "e2e"]
    assert names("unit", "integration") == [("unit", ("unit",)), ("integration", ("integration",))]
    assert names("tests/unit/base", "tests/wire/x.py") == [
        ("tests/unit/base tests/wire/x.py", ("tests/unit/base", "tests/wire/x.py"))
    ]


def test_the_last_line_is_the_sum(run_tests: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    Outcome = run_tests.Outcome  # noqa: N806 - a class
    assert run_tests.report([Outcome("a", passed=2), Outcome("b", passed=1, failed=1, skipped=3)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 1 failed, 3 skipped"
    assert run_tests.report([Outcome("a", passed=2)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
    assert run_tests.report([]) == 1
