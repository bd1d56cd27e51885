"""`POST /sql`: a SELECT over topics, with the rights of its caller."""

from __future__ import annotations

from magnetar.admin.access.access import SQL
from magnetar.admin.calls.call import Call, Operation, Route, Streamed
from magnetar.admin.calls.errors import NotImplementedHereError
from magnetar.admin.sql.query_callers import check_rights, reading_of
from magnetar.admin.sql.sql_requests import BODY, CONTENT_TYPES, form_of, request_of
from magnetar.sql.packages import check_packages
from magnetar.sql.serving.query_places import AskedQuery


async def sql(call: Call) -> object:
    """Answers a SELECT over topics: rows as lines of JSON, or as an Arrow stream when Accept prefers it."""
    queries = call.service.queries
    if not queries.bounds.queries_max:
        raise NotImplementedHereError(
            "this broker answers no SQL", remedy="set sql_queries_max, or use `magnetar sql`"
        )
    request = request_of(call.json_object())
    form = form_of(call.headers.get("accept", ""))
    authorization = call.headers.get("authorization", "")
    reading = reading_of(call.broker, call.identity, authorization, secure=call.secure)
    check_packages()
    asked = AskedQuery(
        owner=call.identity.role if call.identity is not None else call.peer.rpartition(":")[0],
        statement=request.statement,
        form=form,
        rows_max=request.rows_max,
        seconds_max=request.seconds_max,
    )
    query = await queries.begin(asked)
    try:
        await check_rights(call.broker, call.identity, call.peer, query.topics)
        with call.told_of_leaving(query.close):
            await query.read(reading)
    except BaseException:
        query.close()
        raise
    return Streamed(query.pieces(), CONTENT_TYPES[form], query.close, {"x-magnetar-engine": query.engine})


ROUTES: list[Route] = [
    ("POST", SQL, Operation(sql, body=BODY, contents=tuple(CONTENT_TYPES.values()))),
]
