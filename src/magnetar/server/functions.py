"""What a standalone has of functions: opened when something asks for it, run when the first one exists.

Of several processes of a standalone, one has them. The others send calls about functions there, and serve the
topics that functions read and write, as they do for every client.

Until then nothing of functions is imported by this module, and no process is started.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.broker.handlers import renewals
from magnetar.broker.service import Broker
from magnetar.metadata import keys
from magnetar.observability.metrics import Exposition
from magnetar.runtime.threads import in_thread
from magnetar.server.banner import Endpoints
from magnetar.server.settings.config import StandaloneConfig, names
from magnetar.server.storage.datafolder import PACKAGES, functions_dir

if TYPE_CHECKING:
    from magnetar.functions.ports import FunctionCredentials, FunctionWorkers
    from magnetar.functions.service import Functions
    from magnetar.functions.workers.instance_metrics import ToldFigures
    from magnetar.server.processes.member import SharingProcess

    class LocalWorkers(FunctionWorkers, Protocol):
        """Workers whose processes are those of this machine."""

        def start(self) -> None:
            """Begins to follow the catalogue."""

        def figures(self) -> list[ToldFigures]:
            """What the instances told last."""

        async def close(self) -> None:
            """Stops all instances; returns when their processes have ended."""


_log = logging.getLogger("magnetar.server")


def has_functions(config: StandaloneConfig, member: SharingProcess | None, *, shares: bool) -> bool:
    """Whether functions belong beside this process; see `Standalone` for the arguments."""
    return config.functions and (not shares or (member is not None and member.seat.has_functions))


def folder_of(config: StandaloneConfig, data_dir: Path | None, member: SharingProcess | None) -> Path | None:
    """Folder of everything about functions; None: nothing is kept."""
    if member is not None:
        from magnetar.server.bookies.shared_stores import StoragePlace

        # It is read already: the stores of this process are open.
        return functions_dir(Path(StoragePlace.read(Path(member.seat.folder)).data_dir))
    return None if config.ephemeral or data_dir is None else functions_dir(data_dir)


class FunctionsBeside:
    """The functions beside a broker. `begin`, then `close`."""

    def __init__(
        self, broker: Broker, config: StandaloneConfig, folder: Path | None, clock: Clock, urls: Endpoints
    ) -> None:
        """`folder`: of functions; None: one that goes with the process. `urls`: where workers
        reach the broker."""
        self._urls = urls
        self._workers: LocalWorkers | None = None
        self._starting = asyncio.Lock()
        self._broker = broker
        self._config = config
        self._given = folder
        self._clock = clock
        self._made: Path | None = None
        self._functions: Functions | None = None
        self._opening = asyncio.Lock()

    def begin(self) -> None:
        """Lets the admin API use functions, and runs those that there are."""
        self._broker.functions = self.opened
        self._broker.collectors.append(self._collect)
        self._broker.tasks.spawn(self._run())

    def _collect(self, out: Exposition) -> Iterator[None]:
        """Adds the metrics of functions that run."""
        if self._workers is not None:
            # It was imported with the workers.
            metrics = import_module("magnetar.functions.workers.instance_metrics")
            yield from metrics.collect(self._workers.figures(), self._broker.config.cluster, out)

    async def opened(self) -> Functions:
        """The functions; opens them the first time. Raises PackagesFullError, OSError, MetadataError."""
        async with self._opening:
            if self._functions is None:
                self._functions = await self._open()
                self._functions.start = self._start
                self._broker.tasks.spawn(self._start_with_first(self._functions))
            return self._functions

    async def _open(self) -> Functions:
        from magnetar.functions.catalogue.instance_bounds import InstanceBounds
        from magnetar.functions.catalogue.package_files import FileLimits, PackageFiles
        from magnetar.functions.service import opened

        config = self._config
        if self._given is None:
            self._made = Path(await in_thread(tempfile.mkdtemp, prefix="magnetar-functions-"))
        folder = self._folder / PACKAGES
        limits = FileLimits(config.function_package_bytes_max, config.function_packages_bytes_max)
        files = PackageFiles(folder, limits, durable=self._given is not None)
        bounds = InstanceBounds(config.function_instances_max, config.tenant_function_instances_max)
        return await opened(self._broker.store, files, self._clock, bounds)

    @property
    def _folder(self) -> Path:
        folder = self._given or self._made
        assert folder is not None, "it is made when functions are opened"
        return folder

    async def _start_with_first(self, functions: Functions) -> None:
        """Starts the workers once there is a function."""
        while not await functions.catalogue.functions():
            await functions.catalogue.changed()
        await self._start()

    async def _start(self) -> None:
        """Starts the workers; imports them."""
        functions = self._functions
        assert functions is not None, "they are opened first"
        async with self._starting:
            if functions.running is not None:
                return
            if self._broker.siblings is not None and self._broker.guard is not None:
                # A token of a function counts in the process that made it, and its topics are everywhere.
                functions.reason = (
                    "functions of several processes run without authentication only: start"
                    " magnetar standalone without --processes, or leave authentication out"
                )
                _log.error("functions do not run: %s", functions.reason)
                return
            try:
                # By name, so that a start loads nothing of it.
                workers = import_module("magnetar.functions.workers.function_workers")
                plans = import_module("magnetar.functions.workers.plans")
            except ImportError as error:
                functions.reason = f"this installation has no workers that run functions: {error}"
                return
            place = plans.WorkerPlace(
                service_url=self._urls.broker_url,
                admin_url=self._urls.http_url,
                folder=self._folder,
                confines=not self._config.functions_unconfined,
                must_confine=self._broker.guard is not None and not self._config.functions_unconfined,
                starts_processes=self._config.functions_start_processes,
                connect_ports=tuple(map(int, names(self._config.functions_connect_ports))),
            )
            made: LocalWorkers = workers.LocalFunctionWorkers(
                functions.catalogue, lambda: place, self._credentials()
            )
            made.start()
            functions.running = self._workers = made

    def _credentials(self) -> FunctionCredentials:
        """What functions show to the broker."""
        from magnetar.server.function_credentials import NoCredentials, OwnersCredentials

        guard = self._broker.guard
        if guard is None:
            return NoCredentials()
        made = OwnersCredentials(lambda: self._broker.tasks.spawn(renewals.check_all(self._broker)))
        guard.accept(made.tokens)
        return made

    async def _run(self) -> None:
        """Opens the functions at once if there are any."""
        try:
            if await self._broker.store.children(keys.FUNCTIONS):
                await self.opened()
        except MagnetarError as error:
            # The next call about functions tries again, and is told.
            _log.error("functions do not run: %s", error)

    async def close(self) -> None:
        """Ends what runs."""
        if self._workers is not None:
            await self._workers.close()
        if self._functions is not None:
            self._functions.close()
        if self._made is not None:
            await in_thread(shutil.rmtree, self._made, ignore_errors=True)
