"""Tests that can tell the twins apart are found by what they import."""

from __future__ import annotations

from pathlib import Path

import pytest
import twin_tests
from build_twin import TESTS
from run_tests import pure_stages

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three test files: of a compiled module, of one that uses it, and of one that does not."""
    for name, text in {
        "src/magnetar/__init__.py": "",
        "src/magnetar/wire/__init__.py": "",
        "src/magnetar/wire/frames.py": "",
        "src/magnetar/wire/words.py": "",
        "src/magnetar/broker.py": "def f():\n    from magnetar.wire import frames",
        "tests/support/talk.py": "import magnetar.wire.frames",
        "tests/unit/test_itself.py": "from magnetar.wire.frames import size",
        "tests/unit/test_user.py": "import magnetar.broker",
        "tests/unit/test_neighbour.py": "from magnetar.wire import words",
        "tests/unit/test_talk.py": "from support.talk import say",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed(tree: Path) -> None:
    found = twin_tests.reaching(tree, ["tests/unit"])
    assert found == [f"tests/unit/test_{name}.py" for name in ("itself", "talk", "user")]


def test_who_speaks_uses_a_compiled_module_itself_or_by_the_tests_support(tree: Path) -> None:
    found = twin_tests.speaking(tree, ["tests/unit"])
    assert found == ["tests/unit/test_itself.py", "tests/unit/test_talk.py"]


def test_tests_of_what_is_compiled_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    fast, spoken = (set(stage.folders) for stage in pure_stages())
    for place in TESTS:
        assert [file for file in fast if file.startswith(place)], place
    assert "tests/unit/wire/test_server_parser.py" in fast
    assert "tests/integration/test_hostile.py" in spoken
    assert "tests/unit/tools/test_dev.py" not in fast
    assert all(Path(file).exists() for file in fast | spoken)
    left_out = [option for stage in pure_stages() for option in stage.options if "::" in option]
    assert len(left_out) == 6
    for option in left_out:
        file, _, name = option.removeprefix("--deselect=").partition("::")
        assert f"def {name}(" in Path(file).read_text(encoding="utf-8")
