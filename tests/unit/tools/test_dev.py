"""`./dev` says plainly what is wrong with a machine, before it changes anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The script and what it reads, in a folder whose name has spaces, and a PATH without Python."""
    root = tmp_path / "a clone"
    for name in ("dev", "requirements/lock.txt", "requirements/uv.txt", "tools/environment.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    programs = root / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "cksum", "dirname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return root


def dev(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "dev", *arguments],
        env={"PATH": str(clone / "programs"), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def pretend(clone: Path, name: str, answer: str) -> None:
    """An interpreter that answers the script's question so."""
    program = clone / "programs" / name
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)


def test_help_needs_no_python(clone: Path) -> None:
    for arguments in ([], ["help"], ["--help"]):
        found = dev(clone, *arguments)
        assert found.returncode == 0
        assert "./dev demo" in found.stdout
    found = dev(clone, "nonsense")
    assert found.returncode == 2
    assert "no command nonsense" in found.stderr


@pytest.mark.parametrize(
    ("interpreters", "said"),
    [
        ({}, "found none in PATH"),
        ({"python3": 'echo "old 3.9.2"'}, "found only 3.9.2 ("),
        ({"python3.12": "exit 127", "python3": 'echo "old 3.9.2"'}, "found only 3.9.2 ("),
        ({"python3": 'echo "novenv 3.11.2"'}, "lacks venv/ensurepip; install it "),
        ({"python3": 'echo "old 3.9.2"', "python": 'echo "novenv 3.11.2"'}, "apt install python3.11-venv"),
        ({"python3": 'echo "nomodule 3.12.1 ssl"'}, "was built without the module ssl"),
        ({"python3": "exit 127"}, "found none in PATH"),
    ],
)
def test_an_unusable_python_is_explained(clone: Path, interpreters: dict[str, str], said: str) -> None:
    for name, answer in interpreters.items():
        pretend(clone, name, answer)
    found = dev(clone, "test")
    assert found.returncode == 1
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (clone / ".venv").exists()


def test_the_chosen_interpreter_is_checked_too(clone: Path) -> None:
    pretend(clone, "mine", 'echo "old 3.8.1"')
    found = dev(clone, "test", MAGNETAR_PYTHON=str(clone / "programs" / "mine"))
    assert found.returncode == 1
    assert "found only 3.8.1" in found.stderr
    found = dev(clone, "test", MAGNETAR_PYTHON="/absent")
    assert "does not run" in found.stderr


def test_a_usable_python_makes_the_environment_and_the_next_call_needs_none(clone: Path) -> None:
    # Stands in for the set-up: writes the stamp it was told, and an interpreter that shows its arguments.
    pretend(
        clone,
        "python3",
        'case $1 in -c) echo "ok 3.12.1"; exit;; esac\n'
        f'"{shutil.which("mkdir")}" -p "$2/.venv/bin"\n'
        'printf %s "$3" > "$2/.venv/.stamp"\n'
        'printf \'#!/bin/sh\\necho runs "$@"\\n\' > "$2/.venv/bin/python"\n'
        f'"{shutil.which("chmod")}" +x "$2/.venv/bin/python"',
    )
    assert dev(clone, "run", "a b", "c").stdout == "runs -m magnetar a b c\n"
    (clone / "programs" / "python3").unlink()
    assert dev(clone, "demo", "--quick").stdout == "runs -m magnetar.demo --quick\n"
    (clone / "requirements" / "lock.txt").write_text("changed")
    assert "found none in PATH" in dev(clone, "demo").stderr


def test_settings_of_python_from_outside_stay_outside(clone: Path) -> None:
    """Above all the one against bytecode, with which everything takes longer to start."""
    pretend(
        clone,
        "python3",
        'case $1 in -c) echo "ok 3.12.1"; exit;; esac\n'
        f'"{shutil.which("mkdir")}" -p "$2/.venv/bin"\n'
        'printf %s "$3" > "$2/.venv/.stamp"\n'
        f'printf \'#!/bin/sh\\n"{shutil.which("env")}"\\n\' > "$2/.venv/bin/python"\n'
        f'"{shutil.which("chmod")}" +x "$2/.venv/bin/python"',
    )
    names = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    found = dev(clone, "run", **dict.fromkeys(names, "1"), KEPT="1")
    lines = found.stdout.splitlines()
    assert "KEPT=1" in lines
    assert [line for line in lines if line.partition("=")[0] in names] == []
