"""Measured figures name the command and the date that made them.

Sections of tables need both. Elsewhere a paragraph that says "measured" or "took" beside a figure with a unit
needs a date in its section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

MEASURED = {
    "performance.md": "Results",
    "reliability.md": "Figures",
    "security.md": "What an attack costs others|What is tried",
}
"""Sections of documents, with those below them, whose tables are measured."""

HEADING = re.compile(r"^(#{2,3}) (.+)$")
ROW = re.compile(r"^\|.*\d")
COMMAND = re.compile(r"`(?:\./dev|python -m) [^`]+`")
DATE = re.compile(r"\b(?:\d{1,2} [A-Z][a-z]+ 20\d\d|20\d\d-\d\d-\d\d)\b")


@dataclass
class Section:
    """What stands below one heading, up to the next."""

    title: str
    intro: str
    """The text of the section around it; empty at the top."""
    text: str = ""

    def lacks(self) -> list[str]:
        """What its figures need and do not have. One that names a command of its own was a run of its own."""
        where = self.text if COMMAND.search(self.text) else f"{self.intro}\n{self.text}"
        needed = {"a command": COMMAND, "a date": DATE}
        return [name for name, pattern in needed.items() if not pattern.search(where)]


def measured_sections(text: str, titles: str) -> list[Section]:
    """Sections with a table of figures among those of these titles and below them."""
    found: list[Section] = []
    above: Section | None = None
    for line in text.splitlines():
        heading = HEADING.match(line)
        if heading is None:
            if found and above is not None:
                found[-1].text += line + "\n"
        elif heading[1] == "##":
            above = Section(heading[2], "") if re.fullmatch(titles, heading[2]) else None
            if above is not None:
                found.append(above)
        elif above is not None:
            found.append(Section(heading[2], above.text))
    return [section for section in found if any(map(ROW.match, section.text.splitlines()))]


@pytest.mark.parametrize("document", MEASURED)
def test_measured_figures_name_command_and_date(document: str) -> None:
    text = (REPOSITORY / "docs" / document).read_text(encoding="utf-8")
    sections = measured_sections(text, MEASURED[document])
    assert sections
    assert {section.title: section.lacks() for section in sections if section.lacks()} == {}


def test_a_run_of_its_own_needs_a_date_of_its_own() -> None:
    text = "## Results\n\n`./dev bench`, 1 May 2026\n\n### A\n\n| 1 |\n\n### B\n\n`./dev bench b`\n\n| 2 |\n"
    sections = measured_sections(text, "Results")
    assert [(section.title, section.lacks()) for section in sections] == [("A", []), ("B", ["a date"])]


FIGURE = r"\d[\d.,]* ?(?:ms|s|µs|KiB|MiB|GiB|kB|MB|GB|%|minutes|seconds)\b"
TOLD = re.compile(
    rf"\bmeasured\b[^.]*{FIGURE}|{FIGURE}[^.]*\bmeasured\b|\btook (?:\w+ ){{0,2}}{FIGURE}", re.DOTALL
)
EXPLAINS = {"## How it is measured"}
"""Sections that say how figures are made, and tell none."""


def undated(text: str) -> list[str]:
    """Paragraphs with a measured figure in sections without a date."""
    return [
        " ".join(found[0].split())
        for section in re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
        if not DATE.search(section) and section.partition("\n")[0] not in EXPLAINS
        for paragraph in section.split("\n\n")
        if (found := TOLD.search(paragraph))
    ]


def test_measured_figures_in_prose_have_a_date() -> None:
    documents = [*(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("*.md")]
    found = {path.name: undated(path.read_text(encoding="utf-8")) for path in documents}
    assert {name: figures for name, figures in found.items() if figures} == {}


def test_a_figure_without_a_date_is_seen() -> None:
    assert undated("# A\n\n## B\n\nA connection took 4 KiB.\n\n## C\n\n1 May 2026\n")
    assert not undated("## B\n\nA connection took 4 KiB (1 May 2026).\n\n## C\n\nIt waits 4 s.\n")
