"""Composes tiered storage for one process.

A broker of a cluster copies, merges and deletes for the topics that it serves. Work on a whole store, which
is of no topic, is that of the broker that leads (docs/decisions/0039-history-on-a-cluster.md).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.managedlog.orphan_objects import OrphanObjects
from magnetar.metadata.store import MetadataStore
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.syncer import HelperSyncer, Syncer
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.schemas import key_value
from magnetar.server.moved_places import moved_places
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.offload_settings import default_policy
from magnetar.server.storage.datafolder import DataFolder, FolderPaths
from magnetar.server.storage.opened_stores import MessageStores
from magnetar.server.storage.work_folder import WorkFolder
from magnetar.tiered.errors import ReadOnlyStoreError, StoreError
from magnetar.tiered.guarded import ObjectOwners, installation_id
from magnetar.tiered.offloader import Offloader
from magnetar.tiered.offloading import Offloading
from magnetar.tiered.owner import OwnerContext, StoreOwner
from magnetar.tiered.pace import Pace
from magnetar.tiered.parquet.parquet_history import SegmentWorker, StoredTopicSchema
from magnetar.tiered.storage import CopyStores, TieredStorage
from magnetar.tiered.stores.object_store import MEMORY_URL, ObjectStore
from magnetar.tiered.stores.retrying import RetryingStore
from magnetar.tiered.stores.urls import check_url, open_store

if TYPE_CHECKING:
    from magnetar.lake.daily import DailyUpkeep
    from magnetar.lake.tables import LakeTables

_log = logging.getLogger("magnetar.server")

_FRESH_S: Final = 5.0
"""Seconds between two checks of the age of messages that are not in history. A message may exceed the maximum
age of its policy by this time, and again by it while its ledger is sealed."""
_SWEEP_S: Final = 3600.0
"""Seconds between two searches for unnamed objects."""


class _LateTables:
    """A follower that loads the tables at the first change that concerns them."""

    def __init__(self, load: Callable[[], LakeTables | None]) -> None:
        self._load = load

    def changed(self, log_name: str) -> None:
        """See `Follower`."""
        if (lake := self._load()) is not None:
            lake.changed(log_name)

    async def retire(self, log_name: str, attempts: Collection[UUID]) -> None:
        """See `Follower`."""
        if (lake := self._load()) is not None:
            await lake.retire(log_name, attempts)


@dataclass(frozen=True, slots=True)
class HistoryPlaces:
    """Where the history of a process lies."""

    url: str
    """URL of the store of new copies."""
    work: Path | None = None
    """Folder for temporary files; None: one that goes with the process."""
    catalog_file: Path | None = None
    """File of the default catalog of tables; None: there is no default catalog."""
    tables: bool = False
    """Whether there may be tables."""
    shared: bool = False
    """Whether other brokers serve topics of the same metadata."""
    in_folder: bool = False
    """Whether the store is in the data folder, so that no other server can reach it."""

    @property
    def offloads(self) -> bool:
        """Whether ledgers are copied. A broker of a cluster without a store only reads and deletes copies
        that its lists name."""
        return not self.shared or self.url != MEMORY_URL


def places_of(
    config: StandaloneConfig, folder: DataFolder | None, beside: FolderPaths | None = None, *, shares: bool
) -> HistoryPlaces:
    """Where history lies by the settings. `beside`: see `MessageStores.beside`. Raises StartupError."""
    work = None if folder is None else folder.offload_dir
    if shares and beside is None:
        # What is in the folder of one broker, the others do not find.
        return HistoryPlaces(_url(config, None), work, tables=bool(config.lake_catalog), shared=True)
    used = beside or folder
    catalog_file = None if used is None else used.lake_catalog_file
    return HistoryPlaces(
        _url(config, None if used is None else used.offload_dir),
        work,
        catalog_file,
        tables=catalog_file is not None,
        shared=shares,
        in_folder=not config.offload_url,
    )


class Tiering:
    """Tiered storage with its periodic work. It costs nothing until a ledger is offloaded or read back."""

    def __init__(
        self,
        config: StandaloneConfig,
        places: HistoryPlaces,
        *,
        clock: Clock,
        metadata: MetadataStore,
        trust: MetadataTrust,
    ) -> None:
        """Raises StartupError."""
        self._config = config
        self._places = places
        self._lake: LakeTables | None = None
        self._tables_loaded = False
        self._clock = clock
        self._broker: Broker | None = None
        self._tasks = TaskGroup("tiered storage")
        self._work = WorkFolder.own() if places.work is None else WorkFolder.emptied(places.work)
        self._trust = trust
        self._upkeep: DailyUpkeep | None = None
        self.owners = _owners(config, places, clock, metadata)
        self.storage = TieredStorage(
            CopyStores(places.url, self._open_store, self.owners),
            work_dir=self._work.path,
            clock=clock,
            new_worker=partial(_new_worker, config.offload_niceness),
            spawn=self._tasks.spawn,
            cache_bytes=config.offload_read_cache_bytes,
        )
        self._offloader = Offloader(
            self.storage,
            clock=clock,
            pace=Pace(
                share_busy=config.offload_busy_percent / 100,
                bytes_per_s_max=config.offload_bytes_per_s_max,
            ),
            schemas_of=self._schemas_of,
            busy=self._busy,
        )
        self._offloader.retire = self.storage.retire
        self.offloading = Offloading(
            self.storage,
            self._offloader,
            default=default_policy(config),
            new_id=uuid.uuid4,
            spawn=self._tasks.spawn,
        )

    @property
    def offered(self) -> Offloading | None:
        """What offloads for the broker; None: no ledger is copied."""
        return self.offloading if self._places.offloads else None

    def _open_store(self, url: str) -> ObjectStore:
        return RetryingStore(open_store(url, self._clock), pause)

    def begin(self, broker: Broker, syncer: Syncer) -> None:
        """Starts the work on the broker's topics; call it once."""
        if not self._places.offloads:
            return
        self._broker = broker
        if isinstance(syncer, HelperSyncer):
            self._offloader.commits = syncer.latency
        broker.collectors.append(self.storage.figures.collect)
        self._tasks.every(self._config.offload_interval_seconds, self.offloading.round)
        self._tasks.every(_FRESH_S, self.offloading.fresh_round)
        if self._config.offload_merge_interval_seconds:
            self._tasks.every(self._config.offload_merge_interval_seconds, self._keep_up)
        orphans = OrphanObjects(
            broker.store,
            self.storage,
            clock=self._clock,
            age_ms=self._config.offload_orphan_hours * 3_600_000,
            trust=self._trust,
        )
        self.offloading.before_each = self._check_owner
        broker.collectors.append(self.owners.collect)
        self._tasks.spawn(self._take_stores())
        self._tasks.every(self._config.offload_owner_poll_seconds, lambda: self.owners.look(_not_looked))
        if self._places.tables:
            self.storage.follower = _LateTables(self.load_tables)
            if self._config.lake_catalog:
                self.load_tables()

        async def sweep() -> None:
            try:
                if await self._leads():
                    await orphans.round()
            except MagnetarError as error:  # `every` calls it again; objects that stay cost space only
                _log.warning("looking for objects that no log names failed, tried again later: %s", error)

        self._tasks.every(_SWEEP_S, sweep)

    async def _leads(self) -> bool:
        """Whether work on whole stores is this broker's. Raises MetadataError."""
        if not self._places.shared:
            return True
        owners = None if self._broker is None else self._broker.owners
        return owners is not None and owners.balance is not None and await owners.balance.confirm_leads()

    async def _check_owner(self) -> None:
        await self.storage.check_owner()

    async def _take_stores(self) -> None:
        try:
            await self.owners.begin(self.storage.store, _not_looked)
        except MagnetarError as error:  # `owners` looks before the first use of a store
            _log.warning("object stores could not be checked; they are checked when one is needed: %s", error)

    def load_tables(self) -> LakeTables | None:
        """The tables, which the first call starts; None when none are configured. Call it after `begin`.

        Raises StartupError for an unusable catalog.
        """
        if not self._tables_loaded and self._places.offloads and self._places.tables:
            self._tables_loaded = True
            assert self._broker is not None
            # The port is opened before: a broker that does not offload must not wait for it.
            from magnetar.server.tables import TablesUse, begin_tables

            self._lake = begin_tables(
                self._config,
                self._places.catalog_file,
                self.storage,
                TablesUse(self._broker, self._clock, self._tasks, self._trust, self._leads),
            )
            self._broker.lake = self.storage.follower = self._lake
        return self._lake

    async def _keep_up(self) -> None:
        """Does a part of the work of `magnetar lake maintain`."""
        merged = await self.offloading.merge_round()
        if self._lake is not None:
            # Starts do not wait for what is loaded when there is something to do.
            from magnetar.lake.daily import DailyUpkeep

            self._upkeep = self._upkeep or DailyUpkeep(self._clock)
            await self._upkeep.round(self._lake, merged)

    def _busy(self) -> bool:
        return self._broker is not None and self._broker.intake.bytes_used > 0

    async def _schemas_of(self, log_name: str) -> tuple[str, Sequence[StoredTopicSchema]]:
        topic = TopicName.from_log_name(log_name)
        assert self._broker is not None, "nothing is offloaded before there is a broker"
        registry = self._broker.schemas
        # Those that were deleted keep their places: ids of columns follow the order of versions, and a table
        # knows columns by their ids.
        schemas = await registry.ever(topic) if await registry.versions(topic) else ()
        return str(topic), [
            StoredTopicSchema(
                stored.version_bytes,
                stored.schema.type,
                stored.schema.schema_data,
                key_value.properties(stored.schema),
            )
            for stored in schemas
        ]

    async def close(self) -> None:
        """Cancels the work under way, as a crash would; the next process continues it."""
        await self._tasks.close()
        if self._lake is not None:
            await self._lake.close()
        await self.owners.close(_not_looked)
        await self.storage.close()
        self._work.close()


async def open_tiering(
    config: StandaloneConfig, folder: DataFolder | None, stores: MessageStores, clock: Clock, *, shares: bool
) -> Tiering:
    """Tiered storage of a process; `shares`: it is one of several brokers of a cluster. Raises StartupError,
    MetadataError, InvalidLogDataError."""
    places = places_of(config, folder, stores.beside, shares=shares)
    tiering = Tiering(config, places, clock=clock, metadata=stores.metadata, trust=stores.trust)
    used = stores.beside or (None if config.metadata_url else folder)
    if used is not None:
        former = await moved_places(config, used, stores.metadata, is_alone=stores.beside is None)
        # A setting that is named explicitly is used as it is.
        named = {url: now for url, now in former.items() if url != tiering.storage.url}
        tiering.storage.former = named
    return tiering


def _owners(
    config: StandaloneConfig, places: HistoryPlaces, clock: Clock, metadata: MetadataStore
) -> ObjectOwners:
    return ObjectOwners(
        OwnerContext(
            metadata=metadata,
            clock=clock,
            installation=lambda: installation_id(metadata, uuid.uuid4),
            new_id=uuid.uuid4,
            pause=pause,
            poll_s=config.offload_owner_poll_seconds,
            shared=places.shared,
        ),
        default_url=places.url if places.in_folder else "",
        alone=not config.metadata_url,
    )


def _not_looked(owner: StoreOwner, error: MagnetarError) -> None:
    # What makes a store read-only was said when that was found.
    if not isinstance(error, ReadOnlyStoreError):
        _log.warning("the owner's record of %s could not be read: %s", owner.url, error)


def _url(config: StandaloneConfig, folder: Path | None) -> str:
    if not config.offload_url:
        return MEMORY_URL if folder is None else (folder.parent / "offloaded").absolute().as_uri()
    try:
        check_url(config.offload_url)
    except StoreError as error:
        raise StartupError(f"offload_url cannot be used: {error}") from error
    return config.offload_url


def _new_worker(niceness: int, waited_for: bool) -> SegmentWorker:
    # A broker that does not offload need not load it.
    from magnetar.tiered.parquet.offload_worker import OffloadWorker

    return OffloadWorker(niceness=0 if waited_for else niceness)
