"""All that a process has of functions: what is stored, and what runs it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.functions.catalogue.catalogue import Catalogue
from magnetar.functions.catalogue.instance_bounds import DEFAULT_BOUNDS, InstanceBounds
from magnetar.functions.catalogue.package_files import PackageFiles, StoredFile
from magnetar.functions.catalogue.packages import Packages
from magnetar.functions.catalogue.records import FunctionRecord, PackageRecord
from magnetar.functions.ports import FunctionWorkers
from magnetar.functions.refusals import NoWorkersError
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MetadataStore

_log = logging.getLogger("magnetar.functions")


@dataclass(slots=True)
class Functions:
    """Made by `opened`; `close` in the end."""

    catalogue: Catalogue
    packages: Packages
    files: PackageFiles
    running: FunctionWorkers | None = None
    """What runs functions; None: nothing does yet."""
    reason: str = "no worker runs functions in this process"
    """Why `running` is None."""

    start: Callable[[], Awaitable[None]] | None = None
    """Starts what runs functions, once, and sets `running` or `reason`; None: nothing can."""

    async def workers(self) -> FunctionWorkers:
        """What runs functions. Raises NoWorkersError."""
        if self.running is None and self.start is not None:
            await self.start()
        if self.running is None:
            raise NoWorkersError(
                "Function worker service is not done initializing. Please try again in a little while.",
                remedy=self.reason,
            )
        return self.running

    def close(self) -> None:
        """Stops watching."""
        self.catalogue.close()


async def opened(
    store: MetadataStore, files: PackageFiles, clock: Clock, bounds: InstanceBounds = DEFAULT_BOUNDS
) -> Functions:
    """The functions of a process; puts the folder of files in order. Raises PackagesFullError, OSError,
    MetadataError."""
    catalogue, packages = Catalogue(store, files, clock, bounds), Packages(store, files, clock)
    named: set[str] = set()
    for path in await catalogue.paths():
        named |= await _named(store, path, lambda path, data: FunctionRecord.decode(path, data).package)
    for path in await packages.paths():
        named |= await _named(store, path, lambda path, data: PackageRecord.decode(path, data).file)
    unnamed = await files.open(named)
    if unnamed:
        _log.warning(
            "%d files in %s are named by no function or package; they are kept for a week",
            unnamed,
            files.folder,
        )
    return Functions(catalogue, packages, files)


async def _named(
    store: MetadataStore, path: str, file_of: Callable[[str, bytes], StoredFile | None]
) -> set[str]:
    value = await store.get(path)
    try:
        file = None if value is None else file_of(path, value.data)
    except DamagedDocumentError:
        return set()
    return set() if file is None else {file.file_id}
