"""What brokers store their messages and metadata in when it is on this machine: a file, and bookies beside
it.

`replicated_stores.py` has it in the process of the one broker; `server/processes/storage_process.py` in a
process of its own, for several brokers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.ledger.beside import BesideGuard
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.bookies.local_bookie import LocalBookie
from magnetar.server.bookies.local_bookies import LocalBookies, bookie_names
from magnetar.server.settings.config import MIB, StandaloneConfig
from magnetar.server.storage.datafolder import METADATA_RESERVE_BYTES, DataFolder
from magnetar.server.storage.opened_stores import Ends
from magnetar.wire.bookkeeper.packets import AROUND_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class BesideStorage:
    """Opened by `open_beside`."""

    store: EmbeddedMetadataStore
    tree: BookKeeperTree
    registry: FolderBookieRegistry
    trust: MetadataTrust
    guard: BesideGuard
    bookies: LocalBookies


async def open_beside(
    config: StandaloneConfig,
    folder: DataFolder,
    password: str,
    *,
    clock: Clock,
    cleanup: contextlib.AsyncExitStack,
    failed: Callable[[MagnetarError], None],
) -> BesideStorage:
    """Opens the metadata and starts the bookies; `cleanup` closes them. `password`: what the bookies'
    clients must prove, as the user `local_bookie.USER`; "": nothing. Raises StartupError, StorageError,
    MetadataError."""
    if any(folder.bookie_dir.iterdir()):
        raise StartupError(
            f"the data folder {folder.root} keeps messages in the broker's own process: start without"
            " --bookies and --processes, or choose another data folder"
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
    bookies = LocalBookies(registry, _local_bookies(config, folder), password=password)
    cleanup.push_async_callback(bookies.close)
    await bookies.start()
    return BesideStorage(store, tree, registry, trust, guard, bookies)


class KeptBeside:
    """The messages on bookies beside this process, for backups."""

    def __init__(self, guard: BesideGuard, bookies: LocalBookies) -> None:
        self._guard = guard
        self._bookies = bookies

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[Ends]:
        """See `Kept`."""
        async with self._guard.steady(), self._bookies.held():
            yield self._bookies.ends


def packet_bytes_max(config: StandaloneConfig) -> int:
    """Bytes of a packet with the largest message."""
    return config.max_message_bytes + AROUND_MESSAGE_BYTES


def _local_bookies(config: StandaloneConfig, folder: DataFolder) -> list[LocalBookie]:
    return [
        LocalBookie(
            name=name,
            folder=str(folder.bookies_dir),
            metadata_file=str(folder.metadata_file),
            # Together they take about as much disk as one would.
            segment_bytes=max(MIB, config.segment_bytes // config.bookies),
            packet_bytes_max=packet_bytes_max(config),
            log_level=config.log_level,
            log_json=config.log_json,
        )
        for name in bookie_names(config.bookies)
    ]
