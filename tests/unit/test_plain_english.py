"""English that one reads once: documents, docstrings, comments, log lines and error messages.

Documents have short sentences, and links to headings that exist. No text has riddles: a client, process or
operator is named, not "somebody"; a docstring says what a value is, not what it is "of".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.sources import nodes

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(
        path
        for folder in ("docs", "src", "bench", "sim", "chaos", "tools")
        for path in (REPOSITORY / folder).rglob("*.md")
    ),
]

WORDS_MAX = 35
"""Words of one sentence in a document. A semicolon or a colon ends a thought, and so a sentence here."""

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?=[-*|#] |\d+\. |\|)|\|")
ANCHORED = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def prose(text: str) -> str:
    """The text without code blocks, comments and the targets of links; inline code is one word."""
    without = COMMENT.sub("", INDENTED.sub("\n", FENCE.sub("\n\n", text)))
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


def faults(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        shown = sentence if len(sentence) <= 90 else f"{sentence[:90]}…"
        for name, pattern in PATTERNS.items():
            yield from (f"{name} ({found[0]}): {shown}" for found in pattern.finditer(sentence))
        words = len(sentence.split())
        if words > WORDS_MAX:
            yield f"{words} words without a pause, {WORDS_MAX} are allowed: {shown}"


def test_documents_are_plain() -> None:
    wrong = [
        f"{named(path)}: {text}" for path in DOCUMENTS for text in faults(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


SOURCES = sorted(
    path
    for folder in ("src", "bench", "sim", "chaos", "tools", "tests")
    for path in (REPOSITORY / folder).rglob("*.py")
    if not path.name.endswith("_pb2.py") and not path.name.startswith("test_")
)
"""All sources but the tests themselves, whose names and messages tell stories."""
RIDDLES = {
    "who it is has a name, if it is not an operator or user": re.compile(
        r"(?<!operator )(?<!operators )(?<!users )\bwhom?\b(?!.*\?)", re.IGNORECASE
    ),
    "a person in place of a client, user or process": re.compile(
        r"\b(?:nobody|somebody|everybody|anybody|whoever|anyone|everyone|someone|no one)\b", re.IGNORECASE
    ),
    "a quantity without its name": re.compile(
        r"(?:^|[.;:] )So (?:long|many|much|often|far)\b|\bso (?:long|many|much) (?:do|does|may|must)\b"
    ),
    "a denial that is not English": re.compile(
        r"(?<!there )\b(?:is|are|was|were) no (?!longer|more|less|later|reason|sign|loss)", re.IGNORECASE
    ),
    "a fragment, or an inverted sentence": re.compile(
        r"(?:^|[.;:] )Of (?:an?|the|each|every|all|what|those|one|its) "
    ),
}
"""What a docstring, comment, log line, error message or assertion of the sources must not have."""


STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|(#[^\n]*)",
    re.DOTALL,
)
"""A string, or a comment as the first group. `tokenize` says the same and takes twenty times as long."""


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines."""
    line, counted = 1, 0
    for found in STRING_OR_COMMENT.finditer(source):
        if found[1] is not None:
            line += source.count("\n", counted, found.start())
            counted = found.start()
            yield line, found[1]


def texts(source: str, walked: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Docstrings, other strings of several words, and comments with their lines; a block is one comment."""
    for node in walked:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    start, end, words = 0, -1, ""
    for line, comment in comments(source):
        if line != end + 1:
            yield start, words
            start, words = line, ""
        end, words = line, f"{words} {comment.lstrip('# ')}".strip()
    yield start, words


def riddles(source: str, walked: Iterable[ast.AST]) -> Iterator[str]:
    for line, text in texts(source, walked):
        for name, pattern in RIDDLES.items():
            for found in pattern.finditer(text):
                around = text[max(0, found.start() - 30) : found.end() + 40]
                yield f"{line}: {name} ({found[0].strip()}): …{around}…"


def test_sources_are_plain() -> None:
    wrong = [
        f"{named(path)}:{text}"
        for path in SOURCES
        for text in riddles(path.read_text(encoding="utf-8"), nodes(path))
    ]
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
    assert not list(faults("As shown:\n\n    nobody\n\nIt ends.\n"))
    for code in (
        '"""Of the topic."""',
        '"""A limit; who makes more waits."""',
        "x = 1  # nobody reads it",
        "# The first line,\n# which whoever asks gets.",
        'raise ValueError(f"{x} is of somebody else")',
        '_log.warning("everyone waits for %s", x)',
        '"""For clients, who wait."""',
        '"""Told by whom it is asked."""',
        '"""So many are kept."""',
        '"""`ttl_s`: so long does it live."""',
        'raise ValueError(f"{x} is no duration")',
    ):
        assert list(riddles(code, ast.walk(ast.parse(code)))), code
    code = '"""The role that asks."""\nx = "who"  # of the topic'
    assert not list(riddles(code, ast.walk(ast.parse(code))))
    code = '"""Operators who ask are told that there is no topic, or that it is no longer served."""'
    assert not list(riddles(code, ast.walk(ast.parse(code))))
    assert anchors("## A `full` disk, and what\n") == {"a-full-disk-and-what"}
