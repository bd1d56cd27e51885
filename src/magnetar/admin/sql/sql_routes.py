"""`POST /sql`: a SELECT over topics, with the rights of its caller."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from magnetar.admin.access.access import SQL
from magnetar.admin.calls.call import Call, Operation, Route, Streamed
from magnetar.admin.calls.errors import NotImplementedHereError, OtherBrokerError
from magnetar.admin.sql.sql_requests import BODY, CONTENT_TYPES, form_of, request_of
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_BASIC
from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.sql.packages import check_packages
from magnetar.sql.serving.query_frames import WorkerReading
from magnetar.sql.serving.query_places import AskedQuery

_audit = logging.getLogger("magnetar.audit")


async def sql(call: Call) -> object:
    """Answers a SELECT over topics: rows as lines of JSON, or as an Arrow stream when Accept prefers it."""
    queries = call.service.queries
    if not queries.bounds.queries_max:
        raise NotImplementedHereError(
            "this broker answers no SQL", remedy="set sql_queries_max, or use `magnetar sql`"
        )
    request = request_of(call.json_object())
    form = form_of(call.headers.get("accept", ""))
    reading = _reading(call)
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
        await _check_rights(call, query.topics)
        with call.told_of_leaving(query.close):
            await query.read(reading)
    except BaseException:
        query.close()
        raise
    return Streamed(query.pieces(), CONTENT_TYPES[form], query.close, {"x-magnetar-engine": query.engine})


async def _check_rights(call: Call, topics: Iterable[str]) -> None:
    """Asks for the right to consume, for all topics before any of them is looked at. Raises
    AuthorizationError, also for what does not exist."""
    guard, identity = call.broker.guard, call.identity
    if guard is None or identity is None:
        return
    for name in topics:
        await guard.require_topic(identity, call.peer, Action.CONSUME, TopicName.parse(name))
    _audit.info("queried: role %s of %s: %s", identity, call.peer, ", ".join(topics)[:1_000])


def _reading(call: Call) -> WorkerReading:
    """Where the query's process reads: at this broker, as the caller. Raises OtherBrokerError for callers
    that only they themselves can be."""
    broker = call.broker
    host = broker.config.advertised_host or urlsplit(f"//{broker.broker_id}").hostname or "localhost"
    at = broker.listeners.addresses(host)
    service_url, admin_url = (at.tls, at.https) if call.secure else (at.plain or at.tls, at.http or at.https)
    if not service_url or not admin_url:
        ports = "ports with TLS, and what came over TLS stays on TLS" if call.secure else "such ports"
        raise OtherBrokerError(
            503, f"a query needs ports for clients and for calls: there are no {ports}", remedy=_DIRECTLY
        )
    reading = WorkerReading(
        service_url=service_url, admin_url=admin_url, trust_certs=broker.config.trust_certs
    )
    identity = call.identity
    if identity is None:
        return reading
    if identity.via:
        raise OtherBrokerError(503, "a query cannot be asked through a proxy", remedy=_DIRECTLY)
    authorization = call.headers.get("authorization", "")
    if not authorization:
        if identity.proofs:
            raise OtherBrokerError(
                503,
                "the query's process cannot show a client certificate, which only its owner can",
                remedy=f"call with a token; or {_DIRECTLY}",
            )
        return reading
    shown = credentials_of(authorization, "", certificate_role=None, takes_certificates=False)
    if shown.method == METHOD_BASIC:
        user, _, password = shown.data.decode("utf-8", "replace").partition(":")
        return replace(reading, user=user, password=password)
    return replace(reading, token=shown.data.decode("utf-8", "replace"))


_DIRECTLY: Final = "ask with `magnetar sql`, which connects to brokers itself"

ROUTES: list[Route] = [
    ("POST", SQL, Operation(sql, body=BODY, contents=tuple(CONTENT_TYPES.values()))),
]
