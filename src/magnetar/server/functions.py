"""What a standalone has of functions: opened when something asks for it, run when the first one exists.

Until then nothing of functions is imported by this module, and no process is started.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker
from magnetar.metadata import keys
from magnetar.runtime.threads import in_thread
from magnetar.server.settings.config import StandaloneConfig

if TYPE_CHECKING:
    from magnetar.functions.service import Functions

_log = logging.getLogger("magnetar.server")


class FunctionsBeside:
    """The functions beside a broker. `begin`, then `close`."""

    def __init__(self, broker: Broker, config: StandaloneConfig, folder: Path | None, clock: Clock) -> None:
        """`folder`: of uploaded files; None: one that goes with the process."""
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
        self._broker.tasks.spawn(self._run())

    async def opened(self) -> Functions:
        """The functions; opens them the first time. Raises PackagesFullError, OSError, MetadataError."""
        async with self._opening:
            if self._functions is None:
                self._functions = await self._open()
            return self._functions

    async def _open(self) -> Functions:
        from magnetar.functions.catalogue.package_files import FileLimits, PackageFiles
        from magnetar.functions.service import opened

        config = self._config
        folder = self._given
        if folder is None:
            folder = self._made = Path(await in_thread(tempfile.mkdtemp, prefix="magnetar-functions-"))
        limits = FileLimits(config.function_package_bytes_max, config.function_packages_bytes_max)
        files = PackageFiles(folder, limits, durable=self._given is not None)
        return await opened(self._broker.store, files, self._clock)

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
        if self._functions is not None:
            self._functions.close()
        if self._made is not None:
            await in_thread(shutil.rmtree, self._made, ignore_errors=True)
