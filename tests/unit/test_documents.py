"""Documents point at what there is, and commands in them are commands."""

from __future__ import annotations

import re
from pathlib import Path

import click

from magnetar.cli.main import magnetar
from magnetar.cli.table import COMMANDS
from support.document_blocks import WORDS, blocks_of, commands_outside

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(path for folder in ("docs", "src", "bench", "tests") for path in (REPOSITORY / folder).rglob("*.md")),
]

LINK = re.compile(r"\]\(([^)#\s]*)(?:#[^)]*)?\)")
FOLDERS = ("src", "bench", "sim", "chaos", "tools", "tests")
MODULE = re.compile(r"`([\w/]+\.py)`")
DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.md\b")
TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`")
COMMAND = re.compile(rf"(?:\bmagnetar|\./dev run) ({'|'.join(COMMANDS)})((?: [a-z][a-z-]+)?)\b")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_links_lead_somewhere() -> None:
    broken = [
        f"{named(path)}: {target}"
        for path in DOCUMENTS
        for target in LINK.findall(text_of(path))
        if target and "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_documents_that_code_names_are_there() -> None:
    modules = [path for folder in ("src", "bench", "tools") for path in (REPOSITORY / folder).rglob("*.py")]
    broken = [
        f"{named(path)}: {target}"
        for path in [*modules, *DOCUMENTS]
        for target in DOCUMENT.findall(text_of(path))
        if not (REPOSITORY / target).exists() and "NNNN" not in target
    ]
    assert broken == []


def test_modules_that_code_names_are_there() -> None:
    modules = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    names = {path.name for path in modules}
    broken = [
        f"{named(path)}: {target}"
        for path in modules
        for target in MODULE.findall(text_of(path))
        if target.rpartition("/")[2] not in names
    ]
    assert broken == []


def test_tests_that_documents_name_are_there() -> None:
    missing = []
    for path in DOCUMENTS:
        for target, function in TEST.findall(text_of(path)):
            place = REPOSITORY / target
            if not place.exists() or (function and place.is_file() and function not in text_of(place)):
                missing.append(f"{named(path)}: {target} {function}")
    assert missing == []


def test_commands_in_documents_are_commands() -> None:
    wrong = []
    for path in DOCUMENTS:
        for name, second in COMMAND.findall(text_of(path)):
            command = magnetar.get_command(click.Context(magnetar), name)
            if isinstance(command, click.Group) and second.strip() and second.strip() not in command.commands:
                wrong.append(f"{named(path)}: {name}{second}")
    assert wrong == []


def guides() -> list[Path]:
    """What readers follow."""
    return [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]


def test_commands_stand_where_they_are_followed() -> None:
    # tests/e2e/test_documents_followed.py runs them; what it cannot run says why.
    assert [place for path in guides() for place in commands_outside(path, named=named(path))] == []


def test_words_to_whoever_follows_are_known() -> None:
    wrong = [
        block.place
        for path in guides()
        for block in blocks_of(path, named=named(path))
        if block.word not in WORDS
        or (block.word in ("shows", "until", "as", "elsewhere") and not block.argument)
    ]
    assert wrong == []
