"""The bytes that a tenant stores over all its topics, and what happens beyond its limit.

A round examines every topic of the tenants that have a limit: a loaded one tells its size; one that is not
loaded is looked up in metadata once, as it does not grow. So the sum is right after a restart, and when
topics were deleted. Between two rounds a tenant may store more than its limit: what it publishes in STORED_S.
    taking ──stored ≥ limit──▶ refusing ──stored < AGAIN_PERCENT of it──▶ taking
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.rounds import guarded
from magnetar.runtime.tasks import in_slices

if TYPE_CHECKING:
    from magnetar.broker.limits.tenants import StoredMark
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.limits")

STORED_BYTES_MAX: Final = "storedBytesMax"
"""Key of a tenant's document."""
_SYSTEM: Final = "pulsar"
"""Tenant of the broker itself."""
AGAIN_PERCENT: Final = 95
"""Percent of the limit below which producers may come again."""
_TOPICS_PER_TURN: Final = 200
"""Topics that are asked for their size before others have the loop."""


async def limit_of(broker: BrokerPort, tenant: str) -> int:
    """Bytes that a tenant may store, by its document or the broker's setting; 0: without limit."""
    own: object = (await broker.policies.tenant(tenant) or {}).get(STORED_BYTES_MAX)
    if isinstance(own, int) and not isinstance(own, bool) and own >= 0:
        return own
    # The broker's own topics, which show its health, belong to no tenant.
    return 0 if tenant == _SYSTEM else broker.config.tenants.stored_bytes_max


async def look(broker: BrokerPort) -> None:
    """One round over all tenants."""
    # A size that appears while the list is read belongs to a topic in use, though the list lacks it.
    known = set(broker.stored.marks)
    tenants = await broker.policies.tenants()
    broker.stored.forget(known.difference(tenants))
    for tenant in tenants:
        await guarded(look_at(broker, tenant), f"tenant {tenant}: counting what it stores")


async def look_at(broker: BrokerPort, tenant: str, *, older_than_ms: float = 0) -> None:
    """Counts the bytes of one tenant, and refuses or accepts its messages from now on.

    `older_than_ms`: a younger count is reused.
    """
    mark, now_ms = broker.stored.of(tenant), broker.clock.monotonic_ms()
    if now_ms - mark.counted_ms < older_than_ms:
        return
    mark.counted_ms = now_ms
    stored = await _stored(broker, tenant, mark) if await limit_of(broker, tenant) else 0
    # As it is now: an operator may have changed it while topics were counted.
    limit = await limit_of(broker, tenant)
    if not limit:
        if mark.refusal:
            _log.warning(
                "tenant %s has no limit of stored bytes any more: its messages are accepted again", tenant
            )
        mark.free()
        return
    mark.stored, mark.limit = stored, limit
    if mark.refusal and stored * 100 < limit * AGAIN_PERCENT:
        mark.refusal = ""
        _log.warning(
            "tenant %s stores %d bytes of %d: its messages are accepted again", tenant, stored, limit
        )
    elif stored >= limit:
        first, mark.refusal = not mark.refusal, f"tenant {tenant} stores {stored} bytes and may store {limit}"
        if first:
            _log.warning("%s: its producers are disconnected", mark.refusal)
        await _send_away(broker, tenant)


async def _stored(broker: BrokerPort, tenant: str, mark: StoredMark) -> int:
    """Bytes of all its topics; `mark` keeps the sizes of those that are not loaded."""
    sizes: dict[str, int] = {}
    total = 0
    for namespace in map(NamespaceName.parse, await broker.policies.namespaces(tenant)):
        async for log_name in in_slices(await broker.logs.names(str(namespace)), _TOPICS_PER_TURN):
            topic = broker.topics.get(str(TopicName.from_log_name(log_name)))
            if topic is not None:
                total += topic.log.size_bytes
                continue
            size = mark.sizes.get(log_name)
            if size is None:
                found = await broker.logs.peek(log_name, frozenset())
                size = 0 if found is None else found.size_bytes
                if found is not None and not found.exact:
                    # A crash left its last ledger without an end: the size is known once it is loaded.
                    total += size
                    continue
            sizes[log_name] = size
            total += size
    mark.sizes = sizes
    return total


async def _send_away(broker: BrokerPort, tenant: str) -> None:
    async for topic in in_slices(list(broker.topics.values()), _TOPICS_PER_TURN):
        if topic.name.tenant == tenant:
            for producer in list(topic.producers.values()):
                topic.send_producer_away(producer)
