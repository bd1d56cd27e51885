"""The table of settings tells the defaults, the ranges that the start checks, and Pulsar's names as read."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.broker.dynamic import NAMES
from magnetar.cli.processes.config_command import descriptions
from magnetar.server.settings.checks import check, largest
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.pulsar_names import SAME, SCALED, SECRETS, TLS

DOCUMENT = Path(__file__).parents[4] / "docs" / "configuration.md"
DEFAULTS = StandaloneConfig()
NUMBERS = [field.name for field in fields(StandaloneConfig) if field.type == "int"]
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}
ROW = re.compile(
    r"^\| (?P<names>`\w+`(?:, `\w+`)*) \|[^|]*\| ?(?P<default>[^|]*?) ?\| ?(?P<range>[^|]*?) ?"
    r"\| ?(?P<effect>[^|]*?) ?\| ?(?P<theirs>[^|]*?) ?\|$",
    re.MULTILINE,
)


def table() -> dict[str, tuple[str, str, list[str]]]:
    """Default and range of each setting, and Pulsar's names of its row."""
    found = {}
    for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8")):
        names = re.findall(r"\w+", row["names"])
        ranges = row["range"].split("; ")
        defaults = row["default"].split(", ")
        theirs = re.findall(r"\w+", row["theirs"])
        for place, name in enumerate(names):
            found[name] = (
                defaults[min(place, len(defaults) - 1)],
                ranges[min(place, len(ranges) - 1)],
                theirs,
            )
    return found


TABLE = table()


def value(text: str) -> int:
    """A bound: a number, perhaps with a unit, or another setting's default."""
    if text.startswith("`"):
        return int(getattr(DEFAULTS, text.strip("`")))
    number, _, unit = text.partition(" ")
    return int(number.replace(",", "")) * UNITS["" if unit.startswith("(") else unit]


def allowed(name: str, number: int) -> bool:
    """Whether the start takes this, everything else as it is by default."""
    pending = "publish_pending_bytes_max"
    others = {pending: largest(pending)} if name == "max_message_bytes" else {}
    try:
        check(replace(DEFAULTS, **{**others, name: number}))  # type: ignore[arg-type]  # all are numbers
    except StartupError:
        return False
    return True


@pytest.mark.parametrize("name", NUMBERS)
def test_defaults_are_those_of_the_code(name: str) -> None:
    assert value(TABLE[name][0]) == getattr(DEFAULTS, name)


@pytest.mark.parametrize("name", [field.name for field in fields(StandaloneConfig) if field.type == "bool"])
def test_flags_are_by_default_as_told(name: str) -> None:
    assert TABLE[name][0] == str(getattr(DEFAULTS, name)).lower()


@pytest.mark.parametrize("name", NUMBERS)
def test_ranges_are_those_that_are_checked(name: str) -> None:
    for part in TABLE[name][1].split(", "):
        low, dots, high = (piece.strip() for piece in part.partition("…"))
        least = value(low)
        most = value(high) if high else largest(name) if dots else least
        assert allowed(name, least), part
        assert allowed(name, most), part
        assert not allowed(name, least - 1), part
        assert not allowed(name, most + 1), part


def test_pulsars_names_are_those_that_are_read() -> None:
    pairs = {theirs: ours for names in (SAME, TLS, SECRETS) for theirs, ours in names.items()}
    pairs |= {theirs: ours for theirs, (ours, _) in SCALED.items()}
    assert [pair for pair in pairs.items() if pair[0] not in TABLE[pair[1]][2]] == []
    told = {theirs for _, _, row in TABLE.values() for theirs in row}
    assert told - set(pairs) == set()


DESCRIPTIONS = descriptions()
UNIT = re.compile(
    r"\b(?:bytes|MiB|seconds|minutes|hours|milliseconds|percent(?:age)?|port|number|copies|racks|partitions"
    r"|messages|records|commands|calls|topics|bookies|niceness)\b",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """An effect as a declaration has it: without links, in one line."""
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split()).lower().rstrip(".")


@pytest.mark.parametrize("name", [field.name for field in fields(StandaloneConfig)])
def test_every_setting_says_its_effect(name: str) -> None:
    assert name in TABLE, "docs/configuration.md has no row for it"
    assert len(DESCRIPTIONS.get(name, "").split()) >= 4, (
        "its declaration has no docstring that says the effect"
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_a_unit_and_their_range(name: str) -> None:
    said = DESCRIPTIONS[name]
    assert UNIT.search(f"{name.replace('_', ' ')} {said}"), "of what is it a number?"
    for bound in re.findall(r"[\d,]*\d(?: [KM]iB)?|`\w+`", TABLE[name][1]):
        assert bound in said, "the declaration does not say the range of the table"


def test_declarations_say_the_effect_of_the_table() -> None:
    wrong = []
    for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8")):
        names = re.findall(r"\w+", row["names"])
        if len(names) == 1 and not plain(DESCRIPTIONS[names[0]]).startswith(plain(row["effect"])):
            wrong.append(f"{names[0]}: {plain(row['effect'])}")
    assert wrong == []


DOCS = DOCUMENT.parent
SAID = re.compile(r"`(\w+)` \(([\d,]+)(?: (KiB|MiB))?\)")
"""A setting with its default, as documents say it: `cache_bytes` (64 MiB)."""


def test_documents_say_the_defaults() -> None:
    said = [
        (path.name, name, int(number.replace(",", "")) * UNITS[unit])
        for path in (*DOCS.rglob("*.md"), DOCS.parent / "README.md")
        for name, number, unit in SAID.findall(path.read_text(encoding="utf-8"))
        if name in NUMBERS
    ]
    assert len(said) > 3
    assert [each for each in said if each[2] != getattr(DEFAULTS, each[1])] == []


def test_the_readme_counts_the_settings_that_may_change() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"(\d+) settings and all files", text) == [str(len(NAMES))]
