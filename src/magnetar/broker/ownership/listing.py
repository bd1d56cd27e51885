"""Which bundles have an owner, as the metadata store has it."""

from __future__ import annotations

import contextlib

from magnetar.base.names import InvalidNameError
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import NAMESPACES, BrokerReport, BrokerUrls, owner_path
from magnetar.metadata import keys
from magnetar.metadata.store import MetadataStore


async def pulsar_brokers(store: MetadataStore) -> list[str]:
    """Ids of the running brokers that are not ours but Apache Pulsar's. Raises MetadataError."""
    found = []
    for name in await store.children(keys.BROKERS):
        value = await store.get(keys.broker(name))
        if value is not None and BrokerReport.is_pulsars(value.data):
            found.append(name)
    return found


async def owners_in(store: MetadataStore) -> dict[Bundle, str]:
    """Every bundle that has an owner, and the owner's id. Raises MetadataError."""
    found: dict[Bundle, str] = {}
    for tenant in await store.children(NAMESPACES):
        for namespace in await store.children(f"{NAMESPACES}/{tenant}"):
            for name in await store.children(f"{NAMESPACES}/{tenant}/{namespace}"):
                # A text that is not a bundle or a record has no owner.
                with contextlib.suppress(ValueError, InvalidNameError):
                    bundle = Bundle.parse(f"{tenant}/{namespace}/{name}")
                    value = await store.get(owner_path(bundle))
                    if value is not None:
                        found[bundle] = BrokerUrls.decode(value.data).broker_id
    return found
