"""How code wants to be called is read from it, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.functions.errors import CodeError
from magnetar.functions.instance.loading import LoadedFunction, load


def loaded(folder: Path, code: str, class_name: str = "code_of_test") -> LoadedFunction:
    path = folder / "code_of_test.py"
    path.write_text(code)
    return load(class_name, path, [])


@pytest.mark.parametrize(
    ("code", "name", "facts"),
    [
        ("def process(input): return input", "code_of_test", (False, False, False)),
        ("def process(input, context): ...", "code_of_test", (True, False, False)),
        ("async def process(x): ...", "code_of_test", (False, True, False)),
        ("def process(batch): ...", "code_of_test", (False, False, True)),
        ("def process(xs: list[bytes], context): ...", "code_of_test", (True, False, True)),
        ("def other(x, limit=5): ...", "code_of_test.other", (False, False, False)),
        ("class F:\n    def process(self, i, c): ...", "code_of_test.F", (True, False, False)),
    ],
)
def test_signatures(tmp_path: Path, code: str, name: str, facts: tuple[bool, bool, bool]) -> None:
    found = loaded(tmp_path, code, name)
    assert (found.wants_context, found.is_async, found.is_batch) == facts


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "0a1b.py"
    path.write_text("class F:\n    def process(self, x): return x")
    assert load("exclaim.F", path, []).call("a") == "a"


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        ("import no_such_module_here", "code_of_test", "No module named 'no_such_module_here'"),
        ("class F:\n    def __init__(self): raise ValueError('no key')", "code_of_test.F", "no key"),
        ("x = 1", "code_of_test", "has neither"),
        ("def process(a, b, c): ...", "code_of_test", "takes 3 arguments"),
        ("class F: pass", "code_of_test.F", "no method named process"),
        ("import sys; sys.exit(3)", "code_of_test", "SystemExit"),
    ],
)
def test_what_is_wrong_is_said_with_its_cause(tmp_path: Path, code: str, name: str, said: str) -> None:
    with pytest.raises(CodeError, match=said):
        loaded(tmp_path, code, name)
