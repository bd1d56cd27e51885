"""The caller of a query: the rights that its topics need, and how its process reads as the caller."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from magnetar.admin.calls.errors import OtherBrokerError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_BASIC, Identity
from magnetar.auth.permissions import Action
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.sql.serving.query_frames import WorkerReading

_audit = logging.getLogger("magnetar.audit")

_DIRECTLY: Final = "ask with `magnetar sql`, which connects to brokers itself"


async def check_rights(broker: Broker, identity: Identity | None, peer: str, topics: Iterable[str]) -> None:
    """Asks for the right to consume, for all topics before any of them is looked at. Raises
    AuthorizationError, also for what does not exist."""
    guard = broker.guard
    if guard is None or identity is None:
        return
    for name in topics:
        await guard.require_topic(identity, peer, Action.CONSUME, TopicName.parse(name))
    _audit.info("queried: role %s of %s: %s", identity, peer, ", ".join(topics)[:1_000])


def reading_of(
    broker: Broker, identity: Identity | None, authorization: str, *, secure: bool
) -> WorkerReading:
    """Where the query's process reads: at this broker, as the caller. Raises OtherBrokerError for callers
    that only they themselves can be.

    `authorization`: the caller's header; `secure`: whether the call came over TLS.
    """
    host = broker.config.advertised_host or urlsplit(f"//{broker.broker_id}").hostname or "localhost"
    at = broker.listeners.addresses(host)
    service_url, admin_url = (at.tls, at.https) if secure else (at.plain or at.tls, at.http or at.https)
    if not service_url or not admin_url:
        ports = "ports with TLS, and what came over TLS stays on TLS" if secure else "such ports"
        raise OtherBrokerError(
            503, f"a query needs ports for clients and for calls: there are no {ports}", remedy=_DIRECTLY
        )
    reading = WorkerReading(
        service_url=service_url, admin_url=admin_url, trust_certs=broker.config.trust_certs
    )
    if identity is None:
        return reading
    if identity.via:
        raise OtherBrokerError(503, "a query cannot be asked through a proxy", remedy=_DIRECTLY)
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
