"""Reads Java's property files, the form of Pulsar's `broker.conf` and `standalone.conf`.

    # comment, ! comment
    key=value            key: value            key value
    key = one, \\
          two            a line that ends in an odd number of backslashes goes on in the next one,
                         whose leading blanks do not count
    key=tab \\t, colon \\:, letter \\u00e9

The last of several values of a key counts. A key without a separator has the value "".
Source: java.util.Properties, `load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """Keys and values in their order. Raises ValueError for a `\\u` without four hexadecimal digits."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # it matches everything, also nothing
        found[_unescape(match[1])] = _unescape(line[match.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        whole = (pending or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = whole[:-1]
            continue
        pending = None
        yield whole
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    if what == "u":
        raise ValueError(f"{match.string!r}: \\u needs four hexadecimal digits")
    return _ESCAPES.get(what, what)
