"""Reads a call of `POST /sql` (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.admin.calls.errors import BadRequestError, NotAcceptableError
from magnetar.sql.serving.query_frames import ARROW, JSON_LINES

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
JSON_LINES_TYPE: Final = "application/x-ndjson"
_FORMS: Final = {
    ARROW_TYPE: ARROW,
    JSON_LINES_TYPE: JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/json": JSON_LINES,
    "application/*": JSON_LINES,
    "*/*": JSON_LINES,
}
CONTENT_TYPES: Final = {ARROW: ARROW_TYPE, JSON_LINES: JSON_LINES_TYPE}
BODY: Final = {
    "type": "object",
    "properties": {
        "statement": {"type": "string"},
        "rows": {"type": "integer", "minimum": 1},
        "seconds": {"type": "number", "minimum": 1},
    },
    "required": ["statement"],
}
"""JSON schema of a body."""


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """What a call asks for."""

    statement: str
    rows_max: int | None
    seconds_max: float | None


def request_of(document: Mapping[str, object]) -> SqlRequest:
    """The request of a body. Raises BadRequestError."""
    statement = document.get("statement")
    if not isinstance(statement, str) or not statement.strip():
        raise BadRequestError('the body is {"statement": "SELECT …"}, with `rows` and `seconds` as limits')
    unknown = sorted(set(document) - set(BODY["properties"]))
    if unknown:
        raise BadRequestError(f"{unknown[0][:100]!r} is not known: a body has statement, rows, seconds")
    rows = _number(document, "rows")
    if rows is not None and rows != int(rows):
        raise BadRequestError("rows must be a whole number from 1 on")
    return SqlRequest(
        statement.strip().rstrip(";"), None if rows is None else int(rows), _number(document, "seconds")
    )


def _number(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise BadRequestError(f"{name} must be a number from 1 on")
    return value


def form_of(accept: str) -> str:
    """The format that a header Accept prefers: ARROW or JSON_LINES. Raises NotAcceptableError.

    Source: RFC 9110, 12.5.1.
    """
    if not accept.strip():
        return JSON_LINES
    best, form = 0.0, ""
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in _FORMS and weight > best:
            best, form = weight, _FORMS[kind]
    if not form:
        raise NotAcceptableError(f"results are {JSON_LINES_TYPE} or {ARROW_TYPE}")
    return form
