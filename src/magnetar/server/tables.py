"""Composes the Iceberg tables over history for one process."""

from __future__ import annotations

import logging
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


def begin_tables(
    config: StandaloneConfig,
    file: Path | None,
    storage: TieredStorage,
    broker: Broker,
    clock: Clock,
    tasks: TaskGroup,
    trust: MetadataTrust,
) -> LakeTables | None:
    """Starts the tables; returns None when none are configured. `file`: file of the default catalog. Raises
    StartupError."""
    settings = None if file is None else _settings(config, file, storage)
    if file is None or settings is None:
        return None
    lake = LakeTables(
        store=broker.store,
        workers=LakeWorkers(WorkerProcess(settings), WorkerProcess(settings)),
        clock=clock,
        spawn=tasks.spawn,
        used=bool(config.lake_catalog) or file.exists(),
        places=storage,
        trust=trust,
    )
    broker.collectors.append(lake.figures.collect)
    tasks.every(_AGAIN_S, lake.round)

    async def look() -> None:
        try:
            await lake.look()
        except MagnetarError as error:  # `every` calls it again
            _log.warning("tables could not be compared with what is stored, tried again later: %s", error)

    async def look_soon() -> None:
        await pause(_FIRST_S)
        await look()

    tasks.spawn(look_soon())
    tasks.every(_LOOK_S, look)
    return lake


def _settings(config: StandaloneConfig, file: Path, storage: TieredStorage) -> CatalogSettings | None:
    wanted = config.lake_catalog
    if not wanted and not file.exists() and not is_installed():
        # Tables are not configured, and there have never been any.
        return None
    try:
        settings = catalog_settings(wanted, store_url=storage.url, file=file)
    except NoLakeHereError as error:
        if wanted not in ("", NONE):
            raise StartupError(f"lake_catalog is set, but {error}; set it to none") from error
        return None
    file.parent.mkdir(exist_ok=True)
    return settings
