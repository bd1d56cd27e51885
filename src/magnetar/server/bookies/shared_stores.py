"""The stores of a broker process whose metadata and bookies another process of this machine has.

Source: docs/decisions/0037-several-processes.md, "standalone".
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import StartupError
from magnetar.ledger.client.ledger_options import LedgerUser
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.folder_registry import FolderBookieRegistry
from magnetar.metadata.outages import Outages
from magnetar.metadata.served.served_store import ServedMetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.syncer import NoSyncer
from magnetar.server.bookies.beside_storage import packet_bytes_max
from magnetar.server.bookies.ledger_access import client_options
from magnetar.server.bookies.local_bookie import USER
from magnetar.server.bookies.opened_ledgers import open_ledgers
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.ledger_settings import SERVED
from magnetar.server.storage.datafolder import FolderPaths
from magnetar.server.storage.opened_stores import MessageStores

SOCKET: Final = "metadata.sock"
"""In the folder that the processes share: where the metadata is served."""
PLACE: Final = "storage.json"
"""In the same folder: a `StoragePlace`."""


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """What a broker process must know of the storage."""

    data_dir: str
    password: str
    """The one that the bookies ask for; "": they ask for none."""

    def write(self, folder: Path) -> None:
        """Into the folder that the processes share. Raises OSError."""
        file = folder / f"{PLACE}.new"
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")
        # A broker process that starts meanwhile reads the whole of one.
        file.replace(folder / PLACE)

    @classmethod
    def read(cls, folder: Path) -> StoragePlace:
        """From the folder that the processes share. Raises OSError."""
        return cls(**json.loads((folder / PLACE).read_text(encoding="utf-8")))


async def open_shared(
    config: StandaloneConfig, clock: Clock, cleanup: contextlib.AsyncExitStack
) -> MessageStores:
    """Opens the stores; `cleanup` closes them. Raises StartupError, MetadataError."""
    folder = Path(config.metadata_url.removeprefix(SERVED))
    try:
        place = StoragePlace.read(folder)
    except OSError as error:
        raise StartupError(f"the storage of this machine's processes is not there: {error}") from error
    store = await ServedMetadataStore.open(folder / SOCKET)
    cleanup.push_async_callback(store.close)
    tree = BookKeeperTree()
    held = FolderPaths(Path(place.data_dir))
    registry = FolderBookieRegistry(held.bookies_dir, held.metadata_file, tree)
    options = client_options(config, packet_bytes_max=packet_bytes_max(config))
    if place.password:
        options = replace(options, user=LedgerUser(USER, place.password))
    ledgers = await open_ledgers(
        config, options, TreeLedgerRegistry(store, tree), store, registry, clock, cleanup
    )
    outages = Outages(store, clock)
    cleanup.callback(outages.close)
    # Ledgers that metadata does not name are left to the storage process, which also judges the metadata.
    return MessageStores(
        store,
        ledgers,
        None,
        NoSyncer(),
        registry.bookies,
        (ledgers.collect_metrics, outages.collect_metrics),
        MetadataTrust(registry.doubt),
        beside=held,
    )
