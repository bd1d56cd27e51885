"""What a call of `POST /sql` asks for."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.admin.calls.errors import BadRequestError, NotAcceptableError
from magnetar.admin.sql.sql_requests import ARROW_TYPE, SqlRequest, form_of, request_of
from magnetar.sql.serving.query_frames import ARROW, JSON_LINES


def test_a_statement_and_its_limits() -> None:
    assert request_of({"statement": " SELECT 1; "}) == SqlRequest("SELECT 1", None, None)
    given = {"statement": "SELECT 1", "rows": 5, "seconds": 2.5}
    assert request_of(given) == SqlRequest("SELECT 1", 5, 2.5)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"statement": ""},
        {"statement": 1},
        {"statement": "SELECT 1", "rows": 0},
        {"statement": "SELECT 1", "rows": 1.5},
        {"statement": "SELECT 1", "rows": True},
        {"statement": "SELECT 1", "rows": "5"},
        {"statement": "SELECT 1", "seconds": 0.5},
        {"statement": "SELECT 1", "limit": 5},
    ],
)
def test_other_bodies(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        request_of(body)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", JSON_LINES),
        ("*/*", JSON_LINES),
        ("application/json", JSON_LINES),
        ("application/x-ndjson, text/html", JSON_LINES),
        (ARROW_TYPE, ARROW),
        (f"{ARROW_TYPE.upper()};Q=0.9, */*;q=0.1", ARROW),
        (f"{ARROW_TYPE};q=0.1, application/x-ndjson", JSON_LINES),
        (f"text/csv, {ARROW_TYPE};q=0, */*;q=0.5", JSON_LINES),
    ],
)
def test_the_format_that_a_caller_prefers(accept: str, form: str) -> None:
    assert form_of(accept) == form


@pytest.mark.parametrize("accept", ["text/csv", f"{ARROW_TYPE};q=0", f"{ARROW_TYPE};q=x"])
def test_formats_that_are_not_there(accept: str) -> None:
    with pytest.raises(NotAcceptableError):
        form_of(accept)
