"""Which bundles have an owner, as the metadata store has it."""

from __future__ import annotations

import contextlib

from magnetar.base.names import InvalidNameError
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import NAMESPACES, BrokerUrls, owner_path
from magnetar.metadata.store import MetadataStore


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
