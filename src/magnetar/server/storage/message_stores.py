"""Opens the stores of messages and metadata by the settings, and closes them in reverse order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.bookie import store_metrics as bookie_metrics
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.store_options import Durability, StoreOptions
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.ledger.guard import LedgerGuard
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.observability.metrics import Collector
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.storage.datafolder import METADATA_RESERVE_BYTES, DataFolder
from magnetar.server.storage.opened_stores import KeptHere, MessageStores

if TYPE_CHECKING:
    from magnetar.metadata.memory import MemoryMetadataStore


async def open_stores(
    config: StandaloneConfig,
    folder: DataFolder | None,
    *,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    spawn: Callable[[Coroutine[object, object, object]], None],
    failed: Callable[[MagnetarError], None],
    shares: bool = False,
) -> MessageStores:
    """Opens the stores; `cleanup` closes them. `failed` is called when the process cannot continue. `shares`:
    whether other brokers write to the same stores.

    Raises StartupError, StorageError, MetadataError.
    """
    try:
        if not config.bookies and not config.metadata_url:
            return await _open_embedded(
                config, folder, clock=clock, cleanup=cleanup, spawn=spawn, failed=failed
            )
        # Only bookies pay for the import.
        from magnetar.server.bookies import replicated_stores

        return await replicated_stores.open_stores(
            config, folder, clock=clock, cleanup=cleanup, failed=failed, shares=shares
        )
    except OSError as error:
        # A part of the folder has a wrong kind, such as a folder in place of a file, or cannot be read.
        where = None if folder is None else folder.root
        raise StartupError(f"cannot use the data in {where}: {error}; correct it") from error


async def _open_embedded(
    config: StandaloneConfig,
    folder: DataFolder | None,
    *,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    spawn: Callable[[Coroutine[object, object, object]], None],
    failed: Callable[[MagnetarError], None],
) -> MessageStores:
    """Opens stores in this process: one bookie, and metadata in a file."""
    if folder is not None and folder.bookies_dir.exists():
        raise StartupError(
            f"the data folder {folder.root} keeps messages on bookies: start with --bookies, or choose"
            " another data folder"
        )
    bookie = await SegmentStore.open(
        None if folder is None else folder.bookie_dir,
        options=StoreOptions(
            segment_bytes=config.segment_bytes,
            spare_segments=config.spare_segments,
            prewrite_bytes_per_s=config.prewrite_bytes_per_s,
        ),
        durability=Durability.FSYNC if folder is not None else Durability.VOLATILE,
        on_fatal=failed,
    )
    cleanup.push_async_callback(bookie.close)
    store: EmbeddedMetadataStore | MemoryMetadataStore
    if folder is None:
        from magnetar.metadata.memory import MemoryMetadataStore

        store = MemoryMetadataStore(clock)
    else:
        store = EmbeddedMetadataStore.open(
            folder.metadata_file, clock=clock, on_fatal=failed, reserve_bytes=METADATA_RESERVE_BYTES
        )
    cleanup.push_async_callback(store.close)
    guard = None
    trust = MetadataTrust()
    collectors: tuple[Collector, ...] = (partial(bookie_metrics.collect, (bookie,)),)
    if isinstance(store, EmbeddedMetadataStore):
        guard = LedgerGuard(
            bookie, store, clock, trust, grace_s=config.quarantine_grace_seconds, check=store.check
        )
        await guard.begin()
        cleanup.push_async_callback(guard.end)
        spawn(guard.run())
        collectors = (*collectors, guard.collect_metrics)
    ledgers = EmbeddedLedgers(store=bookie, metadata=store, clock=clock, guard=guard)
    kept = None if folder is None else KeptHere(bookie)
    return MessageStores(
        store, ledgers, ledgers.tagged, bookie.syncer, collectors=collectors, trust=trust, kept=kept
    )
