"""The clause of the standard, as the engine's parser takes it."""

from __future__ import annotations

import pytest

from magnetar.sql.as_of import with_at_clauses
from magnetar.sql.engine import SqlEngine
from magnetar.sql.errors import StatementError

T = "FOR SYSTEM_TIME AS OF"


@pytest.mark.parametrize(
    ("clause", "made"),
    [
        (f"o {T} '2026-01-01'", "o AT (TIMESTAMP => '2026-01-01')"),
        ("o for System_Time\nas /* then */ of DATE '2026-01-01'", "o AT (TIMESTAMP => DATE '2026-01-01')"),
        (f"o {T} now() - INTERVAL 1 DAY x", "o AS x AT (TIMESTAMP => now() - INTERVAL 1 DAY)"),
        (f'o {T} now() AS "x y" WHERE a', 'o AS "x y" AT (TIMESTAMP => now()) WHERE a'),
        (f"o x {T} current_timestamp WHERE a", "o x AT (TIMESTAMP => current_timestamp) WHERE a"),
        (f"o {T} now() - INTERVAL '3' hours + INTERVAL (2) day", None),
        (f"o {T} now() - INTERVAL '3 hours'", None),
        (f"o {T} ('2026' || '-01-01')::TIMESTAMP", None),
        (f"o {T} '2026-01-01'::timestamp with time zone", None),
        (f"o {T} make_timestamp(2026, (1), 1, 0, 0, 0)", None),
        (f"(SELECT * FROM o {T} now()) JOIN p {T} '2026-01-01' USING (k)", None),
        (f"o {T} now(), p", "o AT (TIMESTAMP => now()), p"),
        (f"o {T} now() LEFT JOIN p USING (k)", "o AT (TIMESTAMP => now()) LEFT JOIN p USING (k)"),
        (f"o WHERE a = '{T} 1' -- {T}", f"o WHERE a = '{T} 1' -- {T}"),
        ("o AT (TIMESTAMP => now())", "o AT (TIMESTAMP => now())"),
    ],
)
def test_the_engine_takes_it(engine: SqlEngine, clause: str, made: str | None) -> None:
    found = with_at_clauses(f"SELECT * FROM {clause}")
    assert made is None or found == f"SELECT * FROM {made}"
    engine.parse(found)


@pytest.mark.parametrize("behind", ["", ",", "WHERE", ")", "now(", "now() - "])
def test_what_is_no_time(engine: SqlEngine, behind: str) -> None:
    with pytest.raises(StatementError):
        engine.parse(with_at_clauses(f"SELECT * FROM o {T} {behind}"))
