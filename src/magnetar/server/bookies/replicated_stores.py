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
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, MetadataError, StartupError
from magnetar.broker.ownership.listing import pulsar_brokers
from magnetar.ledger.beside import BesideGuard
from magnetar.ledger.client.cluster import Bookies, Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions, LedgerUser
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.adoption import scope_of, store_of_cluster
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster, open_tree
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.bookkeeper.known_ledgers import KnownLedgers, check_known_ledgers
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.racks import BookieRacks
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.documents import text_of
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.keys import BOOKIE_RACKS, BROKERS
from magnetar.metadata.lasting import in_lasting_session
from magnetar.metadata.opening import MetadataUrl, open_metadata, parse_metadata_url
from magnetar.metadata.outages import Outages
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, SessionEvent
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.syncer import NoSyncer
from magnetar.runtime.tasks import Rounds, TaskGroup, pause
from magnetar.server.bookies.ledger_access import LedgerCredentials, client_options, placement
from magnetar.server.bookies.local_bookie import USER, LocalBookie
from magnetar.server.bookies.local_bookies import LocalBookies, bookie_names
from magnetar.server.settings.config import MIB, StandaloneConfig
from magnetar.server.storage.datafolder import METADATA_RESERVE_BYTES, DataFolder
from magnetar.server.storage.opened_stores import Ends, MessageStores
from magnetar.wire.bookkeeper.digests import DigestType
from magnetar.wire.bookkeeper.packets import AROUND_MESSAGE_BYTES

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
    return await _on_cluster(config, clock, cleanup, failed, shares=shares)


async def _beside(
    config: StandaloneConfig,
    folder: DataFolder,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    failed: Callable[[MagnetarError], None],
) -> MessageStores:
    if any(folder.bookie_dir.iterdir()):
        raise StartupError(
            f"the data folder {folder.root} keeps messages in the broker's own process: start without"
            " --bookies, or choose another data folder"
        )
    store = EmbeddedMetadataStore.open(
        folder.metadata_file, clock=clock, on_fatal=failed, reserve_bytes=METADATA_RESERVE_BYTES
    )
    cleanup.push_async_callback(store.close)
    tree = BookKeeperTree()
    await initialize_cluster(store, tree, str(uuid.uuid4()))
    found = await store.get(tree.instance_id)
    assert found is not None, "it was made just now"
    registry = FolderBookieRegistry(folder.bookies_dir, folder.metadata_file, tree)
    registry.initialize(found.data.decode())
    trust = MetadataTrust()
    guard = BesideGuard(folder.bookies_dir, registry, store, trust)
    await guard.begin(found.data.decode(), bookie_names(config.bookies))
    cleanup.push_async_callback(guard.end)
    guarding = TaskGroup("guard of bookies")
    guarding.spawn(guard.run())
    cleanup.push_async_callback(guarding.close)
    # A new one with each start; without it all users of this machine could read the broker's protected
    # messages.
    password = secrets.token_urlsafe() if config.authentication else ""
    bookies = LocalBookies(registry, _local_bookies(config, folder), password=password)
    cleanup.push_async_callback(bookies.close)
    await bookies.start()
    options = client_options(config, packet_bytes_max=_packet_bytes_max(config))
    if password:
        options = replace(options, user=LedgerUser(USER, password))
    ledgers = await _ledgers(
        config, options, TreeLedgerRegistry(store, tree), store, registry, clock, cleanup
    )
    collectors = (ledgers.collect_metrics, guard.collect_metrics)
    kept = KeptBeside(guard, bookies, ledgers)
    return MessageStores(
        store, ledgers, ledgers.tagged, NoSyncer(), registry.bookies, collectors, trust, kept
    )


def _local_bookies(config: StandaloneConfig, folder: DataFolder) -> list[LocalBookie]:
    return [
        LocalBookie(
            name=name,
            folder=str(folder.bookies_dir),
            metadata_file=str(folder.metadata_file),
            # Together they take about as much disk as one would.
            segment_bytes=max(MIB, config.segment_bytes // config.bookies),
            packet_bytes_max=_packet_bytes_max(config),
            log_level=config.log_level,
            log_json=config.log_json,
        )
        for name in bookie_names(config.bookies)
    ]


class KeptBeside:
    """The messages on bookies beside this process, for backups."""

    def __init__(self, guard: BesideGuard, bookies: LocalBookies, ledgers: RemoteLedgers) -> None:
        self._guard = guard
        self._bookies = bookies
        self._ledgers = ledgers

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[Ends]:
        """See `Kept`."""

        async def ends() -> Mapping[str, int]:
            with self._ledgers.holding_adds():
                return await self._bookies.ends()

        async with self._guard.steady(), self._bookies.held():
            yield ends


def _packet_bytes_max(config: StandaloneConfig) -> int:
    """Bytes of a packet with the largest message."""
    return config.max_message_bytes + AROUND_MESSAGE_BYTES


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
    options = client_options(config, packet_bytes_max=_packet_bytes_max(config), credentials=credentials)
    ledgers = await _ledgers(
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


async def _ledgers(
    config: StandaloneConfig,
    how: LedgerClientOptions,
    registry: TreeLedgerRegistry,
    store: MetadataStore,
    bookies: Bookies,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
) -> RemoteLedgers:
    """The ledgers on bookies. `registry` has their metadata, `store` the broker's and the racks."""
    layout = QuorumLayout(config.ledger_ensemble_size, config.ledger_write_quorum, config.ledger_ack_quorum)
    options = LedgerOptions(layout=layout, digest=DigestType[config.ledger_digest])
    racks = BookieRacks(store, BOOKIE_RACKS)
    await racks.load()
    tasks = TaskGroup("racks of bookies")
    cleanup.callback(follow_racks(store, racks, tasks))
    cleanup.push_async_callback(tasks.close)
    cluster = Cluster(
        registry,
        bookies,
        how,
        placement=placement(config, racks.of),
    )
    ledgers = RemoteLedgers(LedgerClient(cluster), options, clock)
    cleanup.push_async_callback(ledgers.close)
    return ledgers


def follow_racks(store: MetadataStore, racks: BookieRacks, tasks: TaskGroup) -> Callable[[], None]:
    """Reads the racks anew when they change, and when a connection comes back, without which no change is
    reported; returns the cancel."""
    again = Rounds(partial(_load_racks, racks), tasks.spawn)

    def session_changed(event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            again.ask()

    unwatch = store.watch(BOOKIE_RACKS, lambda _: again.ask())
    unwatch_session = store.watch_session(session_changed)

    def cancel() -> None:
        unwatch()
        unwatch_session()

    return cancel


async def _load_racks(racks: BookieRacks) -> None:
    try:
        await racks.load()
    except MetadataError as error:
        # Older racks are better than no broker; the watch tells of the next change.
        _log.warning("the racks of bookies could not be read, the last known ones are used: %s", error)
