"""Documents that one reads once: short sentences, no riddles, and links to headings that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(
        path
        for folder in ("docs", "src", "bench", "sim", "tools")
        for path in (REPOSITORY / folder).rglob("*.md")
    ),
]

WORDS_MAX = 35
"""Words of one sentence in a document. A semicolon or a colon ends a thought, and so a sentence here."""

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*|#] |\d+\. |\|)|\|")
ANCHORED = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def prose(text: str) -> str:
    """The text without blocks of code, comments, and the targets of links; a piece of code is one word."""
    without = COMMENT.sub("", FENCE.sub("\n\n", text))
    return CODE.sub("code", LINK.sub(r"\1", without))


def sentences(text: str) -> Iterator[str]:
    for sentence in SENTENCE_END.split(prose(text)):
        if sentence.strip():
            yield " ".join(sentence.split())


def anchors(text: str) -> set[str]:
    """What a link to a heading of the text says after `#`."""
    return {
        re.sub(r"[^\w\- ]", "", LINK.sub(r"\1", heading).lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCE.sub("", text))
    }


PATTERNS = {
    "the subject is a riddle": re.compile(r"^(?:and |or |but )?who\b(?!.*\?$)", re.IGNORECASE),
    "a person in place of a client, user or process": re.compile(
        r"\b(?:nobody|somebody|everybody|anybody|whoever)\b", re.IGNORECASE
    ),
    "an inverted sentence": re.compile(r"^Of (?:an?|the|each|every|all|what|those) "),
}
"""What a sentence must not have."""

FAULTS_LEFT: dict[str, int] = {
    "bench/README.md": 2,
    "docs/compatibility/policies.md": 1,
    "docs/compatibility.md": 3,
    "docs/decisions/0002-commit-completion.md": 1,
    "docs/decisions/0003-embedded-metadata-store.md": 1,
    "docs/decisions/0005-compiled-twin.md": 1,
    "docs/decisions/0011-tenants-share-the-intake.md": 1,
    "docs/decisions/0012-tables-follow-lists.md": 2,
    "docs/decisions/0019-whose-a-store-is.md": 1,
    "docs/decisions/0024-history-keeps-itself-fresh.md": 1,
    "docs/glossary.md": 2,
    "docs/internals/history-format.md": 1,
    "docs/internals/managed-log.md": 2,
    "docs/internals/ordering-rules.md": 1,
    "docs/internals/segment-format.md": 1,
    "docs/internals/spark-sink.md": 1,
    "docs/performance.md": 6,
    "src/magnetar/lake/README.md": 1,
    "src/magnetar/ledger/quorum/README.md": 2,
    "src/magnetar/metadata/README.md": 1,
    "src/magnetar/wire/README.md": 1,
}
"""Documents that nobody has gone through yet, and their faults. The table may only shrink."""


def faults(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        shown = sentence if len(sentence) <= 90 else f"{sentence[:90]}…"
        for name, pattern in PATTERNS.items():
            yield from (f"{name} ({found[0]}): {shown}" for found in pattern.finditer(sentence))
        words = len(sentence.split())
        if words > WORDS_MAX:
            yield f"{words} words without a pause, {WORDS_MAX} are allowed: {shown}"


def test_documents_are_plain() -> None:
    wrong = []
    for path in DOCUMENTS:
        found = list(faults(path.read_text(encoding="utf-8")))
        left = FAULTS_LEFT.get(named(path), 0)
        if len(found) > left:
            wrong += [f"{named(path)}: {text}" for text in found]
    assert wrong == []


def test_links_lead_to_headings() -> None:
    broken = []
    for path in DOCUMENTS:
        for target, anchor in ANCHORED.findall(path.read_text(encoding="utf-8")):
            place = path.parent / target if target else path
            if "://" in target or place.suffix != ".md" or not place.exists():
                continue
            if anchor not in anchors(place.read_text(encoding="utf-8")):
                broken.append(f"{named(path)}: {target}#{anchor}")
    assert broken == []


def test_the_rules_see() -> None:
    for text in (
        "A limit; who makes more waits.",
        "Nobody is asked.",
        "Of a topic that is deleted nothing stays.",
        f"It {'goes on and ' * 20}ends.",
    ):
        assert list(faults(text)), text
    assert not list(faults("A client that makes more waits.\n\n```sh\nwho\n```\n"))
    assert anchors("## A `full` disk, and what\n") == {"a-full-disk-and-what"}
