"""Format strings: `{publish_time:time} {key}: {value.amount}`.

| In the text | Becomes |
|---|---|
| `{name}`, `{value.field}`, `{properties.name}` | names as in filters; what is not there is empty |
| `{publish_time:time}` | a time in ISO form, local |
| `{value:json}` | as JSON |
| `{{`, `}}`, `\\n`, `\\t`, `\\0` | braces, end of line, tabulator, zero byte |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.cli.messages.decoding import plain, text
from magnetar.cli.messages.expressions import NAMES

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\([nt0r\\])")
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "r": "\r", "\\": "\\"}


class TemplateError(MagnetarError):
    """A text is not a valid format string."""


def compiled(template: str) -> Callable[[Mapping[str, object]], str]:
    """Compiles a format string to a function from a message's names to its line. Raises TemplateError."""
    pieces: list[str | Callable[[Mapping[str, object]], str]] = []
    at = 0
    for found in _PIECE.finditer(template):
        pieces.append(template[at : found.start()])
        at = found.end()
        if found[2] is not None:
            pieces.append(_ESCAPES[found[2]])
        elif found[1] is not None:
            pieces.append(_field(found[1]))
        else:
            pieces.append(found[0][0])
    pieces.append(template[at:])
    return lambda names: "".join(each if isinstance(each, str) else each(names) for each in pieces)


def _field(written: str) -> Callable[[Mapping[str, object]], str]:
    path, _, form = written.partition(":")
    name, *fields = path.strip().split(".")
    if name not in NAMES:
        raise TemplateError(f"there is no {{{name}}}; there are {', '.join(sorted(NAMES))}")
    if form not in ("", "json", "time"):
        raise TemplateError(f"{{{written}}}: write json or time after the colon")

    def shown(names: Mapping[str, object]) -> str:
        value = names.get(name)
        for field in fields:
            value = value.get(field) if isinstance(value, Mapping) else None
        if form == "json":
            return json.dumps(plain(value), ensure_ascii=False)
        if value is None:
            return ""
        return time_text(value) if form == "time" else text(value)

    return shown


def time_text(value: object) -> str:
    """Unix milliseconds in ISO form, local time."""
    if not isinstance(value, int):
        return text(value)
    return datetime.fromtimestamp(value / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
