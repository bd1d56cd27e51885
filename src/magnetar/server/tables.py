"""Composes the Iceberg tables over history for one process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, StartupError
from magnetar.broker.service import Broker
from magnetar.lake.lake_values import CatalogSettings
from magnetar.lake.locations import NoLakeHereError
from magnetar.lake.process import LakeWorkers, WorkerProcess, is_installed
from magnetar.lake.setup import NONE, catalog_settings
from magnetar.lake.tables import LakeTables
from magnetar.metadata.trust import MetadataTrust
from magnetar.runtime.tasks import TaskGroup, pause
from magnetar.server.settings.config import StandaloneConfig
from magnetar.tiered.storage import TieredStorage

_log = logging.getLogger("magnetar.server")

_FIRST_S: Final = 5.0
"""Seconds after the start until the first comparison, which updates tables that a crash left out of date."""
_AGAIN_S: Final = 5.0
"""Seconds between two checks for failed tables; each table has its own growing pause."""
_LOOK_S: Final = 3600.0
"""Seconds between two comparisons of all tables with the stored lists."""


@dataclass(frozen=True, slots=True)
class TablesUse:
    """What the tables need of their process."""

    broker: Broker
    clock: Clock
    tasks: TaskGroup
    trust: MetadataTrust
    leads: Callable[[], Awaitable[bool]]
    """Whether this process compares the tables of all topics with the lists. Raises MetadataError."""

    def brokers(self) -> frozenset[str]:
        """Ids of the brokers that are there; empty when there are no others."""
        owners = self.broker.owners
        return frozenset() if owners is None else frozenset(owners.peers.reports)


def begin_tables(
    config: StandaloneConfig, file: Path | None, storage: TieredStorage, use: TablesUse
) -> LakeTables | None:
    """Starts the tables; returns None when none are configured. `file`: file of the default catalog; None:
    there is no default one. Raises StartupError."""
    settings = _settings(config, file, storage)
    if settings is None:
        return None
    lake = LakeTables(
        store=use.broker.store,
        workers=LakeWorkers(WorkerProcess(settings), WorkerProcess(settings)),
        clock=use.clock,
        spawn=use.tasks.spawn,
        used=bool(config.lake_catalog) or file is None or file.exists(),
        places=storage,
        trust=use.trust,
    )
    tasks = use.tasks
    use.broker.collectors.append(lake.figures.collect)
    tasks.every(_AGAIN_S, lake.round)

    async def look() -> None:
        try:
            if await use.leads():
                await lake.look()
        except MagnetarError as error:  # `every` calls it again
            _log.warning("tables could not be compared with what is stored, tried again later: %s", error)

    async def look_soon() -> None:
        await pause(_FIRST_S)
        await look()

    known = use.brokers()

    async def look_after_one() -> None:
        # It may have been killed after a list had its files and before a table had them.
        nonlocal known
        before, known = known, use.brokers()
        if before - known:
            await look()

    tasks.spawn(look_soon())
    tasks.every(_LOOK_S, look)
    tasks.every(_AGAIN_S, look_after_one)
    return lake


def _settings(config: StandaloneConfig, file: Path | None, storage: TieredStorage) -> CatalogSettings | None:
    wanted = config.lake_catalog
    if not wanted and (file is None or not (file.exists() or is_installed())):
        # Tables are not configured, and there have never been any.
        return None
    try:
        settings = catalog_settings(wanted, store_url=storage.url, file=file)
    except NoLakeHereError as error:
        if wanted not in ("", NONE):
            raise StartupError(f"lake_catalog is set, but {error}; set it to none") from error
        return None
    if file is not None:
        file.parent.mkdir(exist_ok=True)
    return settings
