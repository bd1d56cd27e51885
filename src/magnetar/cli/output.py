"""What a command prints: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TextIO

import click

FORMATS: Final = ("table", "json", "yaml")
_COLUMN_MAX: Final = 60
"""Most characters of a table's cell; longer cells are cut, and `-o json` prints them whole."""


def colors_wanted(stream: TextIO) -> bool:
    """Whether to print colours to this stream: it is a terminal, and NO_COLOR is not set (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def styled(text: str, fg: str | None = None, bold: bool | None = None) -> str:
    """`text` in a style of click; without the style when standard output gets no colours."""
    return click.style(text, fg=fg, bold=bold) if colors_wanted(sys.stdout) else text


def show(document: object, output: str, *, columns: Sequence[str] = ()) -> None:
    """Prints a document in one of FORMATS.

    A table has a line for each object of a list, with these `columns` (default: the keys of the first
    object). For one object it has a line for each key, for a list of texts a line for each text.
    """
    if output == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif output == "yaml":
        click.echo("\n".join(yaml_lines(document)))
    else:
        for line in table_lines(document, columns):
            click.echo(line)


def table_lines(document: object, columns: Sequence[str] = ()) -> Iterator[str]:
    """The lines of a table, as `show` describes it."""
    if isinstance(document, Mapping):
        yield from _aligned([[str(key), _cell(value)] for key, value in flat(document)])
    elif isinstance(document, list) and document and isinstance(document[0], Mapping):
        names = list(columns or document[0])
        rows = [[_cut(_cell(row.get(name))) for name in names] for row in document]
        lines = _aligned([[name.upper().replace("_", " ") for name in names], *rows])
        yield styled(next(lines), bold=True)
        yield from lines
    elif isinstance(document, list):
        yield from map(_cell, document)
    elif document is not None:
        yield _cell(document)


def flat(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The pairs of a document in which the keys of nested objects are joined by dots."""
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return ",".join(map(_cell, value)) or "-"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _COLUMN_MAX else text[: _COLUMN_MAX - 3] + "..."


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*(?:://[A-Za-z0-9_/.:+-]*)?")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML 1.1 or 1.2 reads as other types than text; they are quoted."""


def yaml_lines(value: object, indent: str = "") -> Iterator[str]:
    """The lines of a document in YAML's block style. Texts that need quotes are quoted as in JSON, which YAML
    includes."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _yaml_entry(f"{indent}{_scalar(str(key))}:", inner, indent + "  ")
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(yaml_lines(inner, indent + "  "))
            yield f"{indent}- {lines[0].strip()}"
            yield from lines[1:]
    else:
        yield indent + _scalar(value)


def _yaml_entry(head: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | list) and value:
        yield head
        yield from yaml_lines(value, indent)
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
