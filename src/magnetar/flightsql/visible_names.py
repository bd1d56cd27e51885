"""The tenants, namespaces and topics that a caller may consume, as catalogs, schemas and tables.

Nothing else is told, so that a caller does not learn what exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.auth.identity import Identity
from magnetar.auth.permissions import Action
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.lookup import visible_topics
from magnetar.broker.service import Broker
from magnetar.flightsql.commands import NamesAsk, like
from magnetar.flightsql.grpc_messages import RESOURCE_EXHAUSTED, GrpcError
from magnetar.runtime.tasks import in_slices

ROWS_MAX: Final = 10_000
"""Most names of an answer."""
SCHEMAS_MAX: Final = 1_000
"""Most tables of an answer that has their columns too: their schemas are asked for one after the other."""
TABLE_TYPE: Final = "TABLE"
_PER_TURN: Final = 200
"""Names that are looked at in a turn of the loop."""


async def rows_of(broker: Broker, identity: Identity | None, ask: NamesAsk) -> list[list[str]]:
    """The names: of each row its tenant, namespace and topic, as far as they are asked for. Raises GrpcError
    for too many."""
    if ask.table_types and TABLE_TYPE not in ask.table_types:
        return []
    rows: list[list[str]] = []
    most = SCHEMAS_MAX if ask.include_schema else ROWS_MAX
    async for row in _rows(broker, identity, ask):
        rows.append(row)
        if len(rows) > most:
            raise GrpcError(RESOURCE_EXHAUSTED, f"there are more than {most:,} {ask.kind}: name a pattern")
    return rows


async def _rows(broker: Broker, identity: Identity | None, ask: NamesAsk) -> AsyncIterator[list[str]]:
    for tenant in sorted(await broker.policies.tenants()):
        if ask.catalog not in (None, tenant):
            continue
        found = False
        async for text in in_slices(sorted(await broker.policies.namespaces(tenant)), _PER_TURN):
            namespace = NamespaceName.parse(text)
            if not like(namespace.namespace, ask.schema_pattern):
                continue
            topics = await _topics(broker, identity, namespace, needed=ask.kind == "tables")
            if topics is None:
                continue
            if ask.kind == "catalogs":
                found = True
                break
            if ask.kind == "schemas":
                yield [tenant, namespace.namespace]
                continue
            async for name in in_slices(topics, _PER_TURN):
                if like(name, ask.table_pattern):
                    yield [tenant, namespace.namespace, name]
        if found:
            yield [tenant]


async def _topics(
    broker: Broker, identity: Identity | None, namespace: NamespaceName, *, needed: bool
) -> list[str] | None:
    """The topics of a namespace that the caller may consume; empty where they are not needed. None: there is
    no right to any."""
    guard = broker.guard
    may_all = (
        guard is None or identity is None or await guard.may_namespace(identity, Action.CONSUME, namespace)
    )
    granted: set[str] = set()
    if not may_all:
        assert guard is not None, "else all may"
        assert identity is not None, "else all may"
        _, document = await guard.documents(namespace)
        named = (document.get("auth_policies") or {}).get("destination_auth") or {}
        async for name in in_slices(sorted(named), _PER_TURN):
            if await guard.may_topic(identity, Action.CONSUME, TopicName.parse(name)):
                granted.add(str(TopicName.parse(name).base))
        if not granted:
            return None
    if not needed:
        return []
    there = {topic.base for topic in await visible_topics(broker, namespace)}
    return sorted(topic.local for topic in there if may_all or str(topic) in granted)
