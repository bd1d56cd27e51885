"""Stores messages on several bookies: on those that this process starts beside it, or on those of a cluster.

On a cluster the broker's metadata is in the cluster's metadata service too, below /magnetar/CLUSTER, so that
no data is on this machine. A standalone server must be the only broker there: it holds
/magnetar/CLUSTER/broker while its session lasts. broker/ownership has the rules for several brokers.
Reasons: docs/decisions/0009-where-bookies-meet.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, MetadataError, StartupError
from magnetar.broker.ownership.listing import pulsar_brokers
from magnetar.ledger.client.ledger_options import LedgerUser
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.adoption import scope_of, store_of_cluster
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.known_ledgers import KnownLedgers, check_known_ledgers
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.documents import text_of
from magnetar.metadata.keys import BROKERS
from magnetar.metadata.lasting import in_lasting_session
from magnetar.metadata.opening import MetadataUrl, open_metadata, parse_metadata_url
from magnetar.metadata.outages import Outages
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, SessionEvent
from magnetar.runtime.syncer import NoSyncer
from magnetar.runtime.tasks import pause
from magnetar.server.bookies.beside_storage import KeptBeside, open_beside, packet_bytes_max
from magnetar.server.bookies.ledger_access import LedgerCredentials, client_options
from magnetar.server.bookies.local_bookie import USER
from magnetar.server.bookies.opened_ledgers import open_ledgers
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.ledger_settings import SERVED
from magnetar.server.storage.datafolder import DataFolder
from magnetar.server.storage.opened_stores import MessageStores

_log = logging.getLogger("magnetar.server")

_CLAIM: Final = "/broker"
_CLAIM_PAUSE_S: Final = 0.5


async def open_stores(
    config: StandaloneConfig,
    folder: DataFolder | None,
    *,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    failed: Callable[[MagnetarError], None],
    shares: bool,
) -> MessageStores:
    """See `message_stores.open_stores`."""
    if config.bookies:
        assert folder is not None, "the settings were checked"
        return await _beside(config, folder, clock, cleanup, failed)
    if config.metadata_url.startswith(SERVED):
        # Only one of several processes of a standalone server pays for the import.
        from magnetar.server.bookies.shared_stores import open_shared

        return await open_shared(config, clock, cleanup)
    return await _on_cluster(config, clock, cleanup, failed, shares=shares)


async def _beside(
    config: StandaloneConfig,
    folder: DataFolder,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    failed: Callable[[MagnetarError], None],
) -> MessageStores:
    # A new one with each start; without it all users of this machine could read the broker's protected
    # messages.
    password = secrets.token_urlsafe() if config.authentication else ""
    beside = await open_beside(config, folder, password, clock=clock, cleanup=cleanup, failed=failed)
    options = client_options(config, packet_bytes_max=packet_bytes_max(config))
    if password:
        options = replace(options, user=LedgerUser(USER, password))
    store, registry = beside.store, beside.registry
    ledgers = await open_ledgers(
        config, options, TreeLedgerRegistry(store, beside.tree), store, registry, clock, cleanup
    )
    collectors = (ledgers.collect_metrics, beside.guard.collect_metrics)
    kept = KeptBeside(beside.guard, beside.bookies)
    return MessageStores(
        store, ledgers, ledgers.tagged, NoSyncer(), registry.bookies, collectors, beside.trust, kept=kept
    )


async def _on_cluster(
    config: StandaloneConfig,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    failed: Callable[[MagnetarError], None],
    *,
    shares: bool,
) -> MessageStores:
    url = parse_metadata_url(config.metadata_url)
    timeout_s = config.metadata_session_timeout_seconds
    service = await open_metadata(url, clock, session_timeout_ms=1_000 * timeout_s)
    cleanup.push_async_callback(service.close)
    tree = await _tree(service, url)
    scope = scope_of(config.cluster)
    store, adopted = await store_of_cluster(service, config.cluster)
    if (instance := await service.get(tree.instance_id)) is not None:
        on_these = KnownLedgers(text_of(tree.instance_id, instance.data), url.root)
        await check_known_ledgers(store, scope, on_these)
    if adopted:
        await check_pulsar_away(store)
    if shares:
        await check_not_claimed(store, scope)
    else:
        await claim(store, scope, timeout_s + 5.0)

    def changed(event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_LOST:
            # Another broker may serve the topics by now; acknowledged messages are on the bookies.
            failed(MetadataError(f"the session at {config.metadata_url} is lost, and {scope} with it"))

    if not shares:
        cleanup.callback(service.watch_session(changed))
    registry = TreeBookieRegistry(service, tree)
    cleanup.push_async_callback(registry.close)
    credentials = LedgerCredentials(config)
    credentials.follow(config.credential_refresh_seconds, cleanup)
    options = client_options(config, packet_bytes_max=packet_bytes_max(config), credentials=credentials)
    ledgers = await open_ledgers(
        config, options, TreeLedgerRegistry(service, tree), store, registry, clock, cleanup
    )
    ledgers.for_pulsar = adopted
    outages = Outages(service, clock)
    cleanup.callback(outages.close)
    # Other programs may have ledgers there, so ledgers that our metadata does not name are left alone.
    collectors = (ledgers.collect_metrics, outages.collect_metrics, credentials.files.collect)
    return MessageStores(
        store,
        ledgers,
        None,
        NoSyncer(),
        registry.bookies,
        collectors,
        adopted=adopted,
        credentials=credentials.files,
    )


async def _tree(service: MetadataStore, url: MetadataUrl) -> BookKeeperTree:
    try:
        return await open_tree(service, url.root, layout=url.layout)
    except ClusterNotInitializedError as error:
        raise StartupError(
            f"{error}; start its first bookie with --initialize, or name the root of the one that is there"
        ) from error
    except LayoutError as error:
        raise StartupError(str(error)) from error


async def check_pulsar_away(store: MetadataStore) -> None:
    """Raises StartupError while brokers of Pulsar's serve the adopted cluster; MetadataError."""
    if running := await pulsar_brokers(store):
        raise StartupError(
            f"brokers of Apache Pulsar serve this cluster ({', '.join(running)}): both kinds at once are not"
            " supported, because each would take the other's topics without telling its clients; stop them,"
            " and wait for their sessions to end"
        )


async def check_not_claimed(store: MetadataStore, scope: str) -> None:
    """Raises StartupError when a standalone server has claimed the cluster; MetadataError."""
    held = await store.get(_CLAIM)
    if held is not None:
        holder = held.data.decode(errors="replace")
        raise StartupError(
            f"{scope} is served by {holder}, a standalone server: stop it, and wait for its session to end"
        )


async def claim(store: MetadataStore, scope: str, patience_s: float) -> None:
    """Claims the cluster for this standalone server with an ephemeral node; waits up to `patience_s` seconds
    for the session of a predecessor to end. Raises StartupError when the cluster is taken; MetadataError."""
    await in_lasting_session(store, lambda: _claim(store, scope, patience_s))


async def _claim(store: MetadataStore, scope: str, patience_s: float) -> None:
    me = f"{socket.gethostname()} process {os.getpid()}"
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    told = False
    if brokers := await store.children(BROKERS):
        raise StartupError(
            f"{scope} is served by several brokers ({', '.join(brokers)}): start another with"
            " magnetar broker, or set another name for this one's cluster"
        )
    while True:
        try:
            await store.put(_CLAIM, me.encode(), expected_version=MUST_NOT_EXIST, ephemeral=True)
            return
        except BadVersionError:
            held = await store.get(_CLAIM)
        if held is not None and held.stat.created_by_self:
            return
        holder = "another broker" if held is None else held.data.decode(errors="replace")
        if loop.time() > deadline_s:
            raise StartupError(
                f"{scope} is served by {holder}: stop it, or set another name for this one's cluster"
            )
        if not told:
            told = True
            _log.info("waiting for the session of %s, which has %s, to end", holder, scope)
        await pause(_CLAIM_PAUSE_S)
