"""Finds the ends of statements in what a user types. Pure."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|;|[^'\"$;/-]+|.", re.S
)
"""Texts, quoted names, comments, and what lies between them; a quote without its end is one character."""


def split(text: str) -> tuple[list[str], str]:
    """The statements that end with a semicolon, without it, and what follows the last one.

    Semicolons in texts, quoted names and comments end nothing.
    """
    statements: list[str] = []
    start = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ("'", '"') or (text.startswith("/*", found.start()) and token == "/"):
            break  # What is open goes on in the next line.
        if token == ";":
            statements.append(text[start : found.start()].strip())
            start = found.end()
    return [each for each in statements if each], text[start:]
