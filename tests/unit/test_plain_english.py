"""English that one reads once: documents, docstrings, comments, log lines and error messages.

Documents have short sentences, and links to headings that exist. No text has riddles: a client, process or
operator is named; a docstring says what a value is, not what it is "of".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from source_trees import STRING_OR_COMMENT

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
TESTS = sorted((REPOSITORY / "tests").rglob("test_*.py"))
"""The tests, whose docstrings and comments are held to the same rules."""
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


def found_in(source: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Strings and comments with their lines."""
    line, counted = 1, 0
    for found in STRING_OR_COMMENT.finditer(source):
        line += source.count("\n", counted, found.start())
        counted = found.start()
        yield line, found


def strings(walked: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Docstrings and other strings with their lines."""
    for node in walked:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings alone, those below attributes among them. To parse all tests would take seconds."""
    for line, found in found_in(source):
        begin = source.rfind("\n", 0, found.start()) + 1
        if found[0].startswith('"""') and not source[begin : found.start()].strip():
            yield line, found[0].strip('"')


def texts(source: str, said: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Strings of several words, and comments with their lines; a block is one comment."""
    for line, text in said:
        if " " in text:
            yield line, " ".join(text.split())
    start, end, words = 0, -1, ""
    for line, found in found_in(source):
        if (comment := found[1]) is None:
            continue
        if line != end + 1:
            yield start, words
            start, words = line, ""
        end, words = line, f"{words} {comment.lstrip('# ')}".strip()
    yield start, words


def riddles(source: str, said: Iterable[tuple[int, str]]) -> Iterator[str]:
    """The faults of comments and of what is `said` in strings."""
    for line, text in texts(source, said):
        for name, pattern in RIDDLES.items():
            for found in pattern.finditer(text):
                around = text[max(0, found.start() - 30) : found.end() + 40]
                yield f"{line}: {name} ({found[0].strip()}): …{around}…"


def test_sources_are_plain() -> None:
    wrong = [
        f"{named(path)}:{text}"
        for path in SOURCES
        for text in riddles(path.read_text(encoding="utf-8"), strings(nodes(path)))
    ]
    assert wrong == []


def test_tests_are_plain() -> None:
    wrong = [
        f"{named(path)}:{text}"
        for path in TESTS
        for source in (path.read_text(encoding="utf-8"),)
        for text in riddles(source, docstrings(source))
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
        assert list(riddles(code, strings(ast.walk(ast.parse(code))))), code
    code = '"""The role that asks."""\nx = "who"  # of the topic'
    assert not list(riddles(code, strings(ast.walk(ast.parse(code)))))
    code = '"""The role that asks."""\nassert x, "nobody who asks"'
    assert not list(riddles(code, docstrings(code)))
    code = '"""Nobody."""\nassert x, "told"  # by whom it is asked'
    assert len(list(riddles(code, docstrings(code)))) == 1
    code = '"""Operators who ask are told that there is no topic, or that it is no longer served."""'
    assert not list(riddles(code, strings(ast.walk(ast.parse(code)))))
    assert anchors("## A `full` disk, and what\n") == {"a-full-disk-and-what"}
