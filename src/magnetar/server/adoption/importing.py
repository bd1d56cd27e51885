"""Takes over the policies of topics from Pulsar's `__change_events` topics (driver)."""

from __future__ import annotations

import contextlib
import json

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName
from magnetar.ledger.api import Ledgers
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata import keys
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.store import MetadataStore, NotFoundError
from magnetar.runtime.clock import SystemClock
from magnetar.schemas.registry import SchemaRegistry, registry_of
from magnetar.server.adoption.change_events import ChangeEvents
from magnetar.server.adoption.findings import AdoptionFindings
from magnetar.server.adoption.topic_policies import document_of, without_place


async def import_topic_policies(
    service: MetadataStore,
    tree: BookKeeperTree,
    store: MetadataStore,
    access: LedgerClientOptions,
    found: AdoptionFindings,
) -> None:
    """Stores the policies of each topic as brokers of ours read them, in place of those that an earlier
    adoption stored, and notes what has no place there.

    No broker may run: the ledgers of the events are recovered. Raises MetadataError. Events that cannot be
    read prevent the adoption.
    """
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as cleanup:
        bookies = TreeBookieRegistry(service, tree)
        cleanup.push_async_callback(bookies.close)
        client = LedgerClient(Cluster(TreeLedgerRegistry(service, tree), bookies, access))
        ledgers = RemoteLedgers(client, LedgerOptions(layout=QuorumLayout(1, 1, 1)), clock)
        cleanup.push_async_callback(ledgers.close)
        schemas = registry_of(store, ledgers, clock, for_pulsar=True)
        cleanup.callback(schemas.close)
        await take_over(store, ledgers, schemas, found)


async def take_over(
    store: MetadataStore, ledgers: Ledgers, schemas: SchemaRegistry, found: AdoptionFindings
) -> None:
    """Reads all events before it writes a document, so that an adoption that is prevented changes nothing."""
    documents: dict[str, dict[str, object]] = {}
    stale: list[str] = []
    for namespace in await _namespaces(store):
        events = ChangeEvents(store, ledgers, schemas, namespace)
        if not await events.topics():
            # Where there are no events, Pulsar itself may have documents.
            continue
        stale += await _stored(store, namespace)
        try:
            newest = await events.read()
        except MagnetarError as error:
            found.prevent(keys.managed_ledgers(namespace), f"policies of topics cannot be read: {error}")
            continue
        for (topic, everywhere), event in newest.items():
            if event.policies is None:
                continue
            found.counts["topics with policies"] += 1
            path = keys.topic_policies(topic) if everywhere else keys.local_topic_policies(topic)
            documents[path] = document_of(event.policies)
            for policy in without_place(event.policies):
                found.note(path, f"the policy {policy} of the topic has no effect")
    if found.obstacles:
        return
    for path, document in documents.items():
        await store.put(path, json.dumps(document).encode())
    # An earlier adoption stored the others. Pulsar has removed them since, and a TTL would delete messages.
    for path in stale:
        if path not in documents:
            with contextlib.suppress(NotFoundError):  # it is gone as wanted
                await store.delete(path)


async def _namespaces(store: MetadataStore) -> list[NamespaceName]:
    return [
        NamespaceName(tenant, name)
        for tenant in await store.children(keys.POLICIES)
        for name in await store.children(keys.tenant(tenant))
    ]


async def _stored(store: MetadataStore, namespace: NamespaceName) -> list[str]:
    """The paths of all documents of topics of a namespace."""
    return [
        f"{root}/{namespace}/{domain}/{topic}"
        for root in (keys.TOPIC_POLICIES, keys.LOCAL_TOPIC_POLICIES)
        for domain in await store.children(f"{root}/{namespace}")
        for topic in await store.children(f"{root}/{namespace}/{domain}")
    ]
