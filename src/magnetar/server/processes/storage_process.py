"""The program of the process that has the storage of several broker processes: metadata, and bookies beside
it.

    python -m magnetar.server.processes.storage_process      (only the supervisor starts it)

The first line of standard input is a `StorageSeat`. One line on standard output says that it serves. It
ends with SIGTERM, or when standard input ends: then the supervisor is gone, and it waits for the brokers,
which write their last metadata while they drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from magnetar.base.errors import MagnetarError
from magnetar.metadata.served.metadata_server import MetadataServer
from magnetar.observability import logs
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.local_calls import CallServer
from magnetar.runtime.tasks import pause, race
from magnetar.server import open_files
from magnetar.server.backup.staging import Staging
from magnetar.server.bookies.beside_storage import KeptBeside, open_beside
from magnetar.server.bookies.shared_stores import SOCKET, StoragePlace
from magnetar.server.moved_places import moved_places
from magnetar.server.processes.seat import STORAGE_CALLS
from magnetar.server.processes.storage_calls import calls_of
from magnetar.server.processes.storage_seat import READY, StorageSeat, with_storage
from magnetar.server.security import core_dumps
from magnetar.server.settings.config import StandaloneConfig, default_data_dir
from magnetar.server.settings.loading import load
from magnetar.server.storage.datafolder import DataFolder

_log = logging.getLogger("magnetar.server")

ORPHAN_S: Final = 35.0
"""Most seconds for which it outlives the supervisor: longer than the broker processes do."""
_LOOK_S: Final = 0.2
_READ_BYTES: Final = 4096


class StorageProcess:
    """See the module's text."""

    def __init__(self, config: StandaloneConfig, seat: StorageSeat) -> None:
        self._config = config
        self._folder = Path(seat.folder)
        self._password = seat.password
        self._over = asyncio.Event()
        self._orphan = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Serves until it is told to end; the exit code. Raises StartupError, StorageError, MetadataError."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        # Those are for the supervisor, and for brokers, which read credentials anew.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        loop.add_reader(sys.stdin.fileno(), self._heard)
        clock = SystemClock()
        async with contextlib.AsyncExitStack() as cleanup:
            folder = DataFolder(self._config.data_dir or default_data_dir())
            cleanup.callback(folder.release)
            beside = await open_beside(
                self._config,
                folder,
                self._password,
                clock=clock,
                cleanup=cleanup,
                failed=self._failed,
            )
            StoragePlace(str(folder.root.absolute()), self._password).write(self._folder)
            await moved_places(self._config, folder, beside.store, is_alone=True)
            points = Staging(folder, KeptBeside(beside.guard, beside.bookies), clock)
            cleanup.push_async_callback(points.close)
            server = MetadataServer(beside.store)
            cleanup.push_async_callback(server.close)
            calls = CallServer(calls_of(server, beside, points))
            cleanup.push_async_callback(calls.close)
            await calls.start(self._folder / STORAGE_CALLS)
            await server.start(self._folder / SOCKET)
            sys.stdout.buffer.write(READY)
            sys.stdout.buffer.flush()
            await race(self._over.wait(), self._left_alone(server))
        return self._exit_code

    async def _left_alone(self, server: MetadataServer) -> None:
        """Returns when the supervisor is gone, and then the brokers, or ORPHAN_S later."""
        await self._orphan.wait()
        with contextlib.suppress(TimeoutError):  # a broker hangs: what was acknowledged is durable
            async with asyncio.timeout(ORPHAN_S):
                while server.sessions:
                    await pause(_LOOK_S)

    def _heard(self) -> None:
        if not os.read(sys.stdin.fileno(), _READ_BYTES):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._orphan.set()

    def _failed(self, error: MagnetarError) -> None:
        _log.critical("the storage process stops: %s", error)
        self._exit_code = 1
        self._over.set()


def main() -> int:
    """Runs the process; returns its exit code."""
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        # The supervisor has ended before it said anything.
        return 0
    seat = StorageSeat.decode(line)
    try:
        config = with_storage(load(seat.overrides, file=Path(seat.config) if seat.config else None).config)
        logs.configure(
            level=config.log_level,
            as_json=config.log_json,
            per_minute_max=config.log_event_records_per_minute,
        )
        open_files.raise_limit()
        if config.holds_secrets:
            core_dumps.forbid()
        return event_loop.run(StorageProcess(config, seat).run())
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: the storage process: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
