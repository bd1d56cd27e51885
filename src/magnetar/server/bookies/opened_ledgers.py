"""The ledgers of a broker on bookies, and the racks of those."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.ledger.client.cluster import Bookies, Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.racks import BookieRacks
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.metadata.store import MetadataStore, SessionEvent
from magnetar.runtime.tasks import Rounds, TaskGroup
from magnetar.server.bookies.ledger_access import placement
from magnetar.server.settings.config import StandaloneConfig
from magnetar.wire.bookkeeper.digests import DigestType

_log = logging.getLogger("magnetar.server")


async def open_ledgers(
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
