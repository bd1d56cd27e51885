"""`--processes N`: starts, watches, replaces and stops N broker processes. Driver of `supervision.py`.

    SIGTERM, SIGINT   all processes are drained; a second one ends them at once
    SIGHUP            passed on: they read their credentials anew
    SIGUSR2           they are restarted one after the other, with what is installed and configured now

Each process has a connection to the supervisor, over which it gets its place and tells that it serves. When
the supervisor is killed, the connections end, and the processes stop: none is left that nothing would
replace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.locked_folder import LockedFolder
from magnetar.runtime.tasks import TaskGroup, call_later
from magnetar.server import open_files
from magnetar.server.banner import Endpoints, remove_ready_file, say, write_ready
from magnetar.server.processes.neighbours import addresses_of
from magnetar.server.processes.reservations import Reservations
from magnetar.server.processes.seat import STOP, Seat, decode_ready
from magnetar.server.processes.storage_keeper import StorageKeeper
from magnetar.server.processes.storage_seat import StorageSeat, with_storage
from magnetar.server.processes.supervision import Effect, Log, StartProcess, StopProcess, Supervision, Tell
from magnetar.server.security import core_dumps
from magnetar.server.security.exposure import check_exposure
from magnetar.server.service_manager import ServiceManager
from magnetar.server.settings.config import StandaloneConfig

_log = logging.getLogger("magnetar.server")

PROGRAM: Final = "magnetar.server.processes.broker_process"
FOLDER_PREFIX: Final = "magnetar-processes-"
_LINE_BYTES_MAX: Final = 1 << 16


def run(
    config: StandaloneConfig, file: Path | None, overrides: Mapping[str, object], *, storage: bool
) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. `file`, `overrides`: where the settings come from.
    `storage`: whether a further process has the metadata and the messages.

    Raises StartupError.
    """
    open_files.raise_limit()
    if config.holds_secrets:
        core_dumps.forbid()
    check_exposure(config)
    if storage:
        config = with_storage(config)
    with contextlib.ExitStack() as cleanup:
        supervisor = Supervisor(config, Reservations(config, cleanup), file, overrides, storage=storage)
        return event_loop.run(supervisor.run())


@contextlib.contextmanager
def meeting_folder() -> Iterator[LockedFolder]:
    """A new folder for the sockets of the processes, which only this user can enter. It goes at the end of
    the block, and those of killed supervisors at its beginning, when their processes have ended too. The lock
    keeps programs that remove old temporary files away, such as systemd-tmpfiles. Raises StartupError."""
    try:
        folder = LockedFolder.make(FOLDER_PREFIX)
    except OSError as error:
        # As in a container whose root is read-only.
        raise StartupError(
            f"several processes need a folder for their sockets: {error.strerror};"
            " name a folder for temporary files, which can be written to, with TMPDIR"
        ) from error
    try:
        yield folder
    finally:
        folder.close()


class _Running:
    """A process that was started."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.endpoints: Endpoints | None = None
        """None: it does not serve yet."""


class Supervisor:
    """See the module's text."""

    def __init__(
        self,
        config: StandaloneConfig,
        reservations: Reservations,
        file: Path | None,
        overrides: Mapping[str, object],
        *,
        storage: bool,
    ) -> None:
        """`storage`: see `run`."""
        self._config = config
        self._has_storage = storage
        self._storage: StorageKeeper | None = None
        self._reservations = reservations
        self._file = file
        self._overrides = {name: value for name, value in overrides.items() if value is not None}
        self._supervision = Supervision(config.processes)
        self._running: dict[int, _Running] = {}
        self._tasks = TaskGroup("supervisor")
        self._clock = SystemClock()
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._terminal = os.isatty(0)
        self._folder, self._lock = "", -1
        self._manager = ServiceManager.taken()

    async def run(self) -> int:
        """See `run`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._do(self._supervision.restart()))
        with meeting_folder() as folder:
            # Every process inherits its lock: they may outlive this one.
            self._folder, self._lock = str(folder.path), folder.descriptor
            try:
                if self._has_storage:
                    password = secrets.token_urlsafe() if self._config.authentication else ""
                    seat = StorageSeat(self._folder, str(self._file or ""), self._overrides, password)
                    self._storage = StorageKeeper(seat, self._lock, self._renew_ready)
                    await self._storage.start()
                self._do(self._supervision.begin(self._now_s()))
                await self._over.wait()
            finally:
                if self._config.ready_file is not None:
                    remove_ready_file(self._config.ready_file)
                self._kill()
                await self._tasks.close()
                if self._storage is not None:
                    # After the brokers: they write their last metadata while they drain.
                    await self._storage.close()
        _log.info("stopped")
        return self._supervision.exit_code

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1000

    # -- signals -----------------------------------------------------------------------------------

    def _stopped(self, number: int) -> None:
        if self._supervision.stopping:
            # The second signal: no more waiting. Acknowledged messages are durable already.
            self._kill()
            if self._storage is not None:
                self._storage.kill()
            if self._config.ready_file is not None:
                remove_ready_file(self._config.ready_file)
            os._exit(128 + number)
        _log.info("%s: stopping %d processes", signal.Signals(number).name, len(self._running))
        self._manager.stopping()
        self._do(self._supervision.stop())

    def _hung_up(self) -> None:
        if self._terminal and not os.isatty(0):
            self._stopped(signal.SIGHUP)
            return
        for running in self._running.values():
            self._signal(running, signal.SIGHUP)

    def _kill(self) -> None:
        for running in self._running.values():
            self._signal(running, signal.SIGKILL)

    @staticmethod
    def _signal(running: _Running, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            running.process.send_signal(number)

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartProcess(number):
                    self._tasks.spawn(self._attend(number))
                case StopProcess(number, alone):
                    self._stop(number, alone=alone)
                case Tell():
                    self._tell()
                case Log(text, is_warning):
                    _log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
        if self._supervision.over:
            self._over.set()
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._supervision.due_s()
        self._timer = None if due_s is None else call_later(max(0.0, due_s - self._now_s()), self._passed)

    def _passed(self) -> None:
        self._timer = None
        self._do(self._supervision.passed(self._now_s()))

    def _stop(self, number: int, *, alone: bool) -> None:
        running = self._running.get(number)
        if running is None:
            # It is being started: `_attend` sees that it is to stop.
            return
        if not alone and running.endpoints is not None:
            with contextlib.suppress(OSError):  # it has just ended
                running.control.send(STOP)
        else:
            self._signal(running, signal.SIGTERM)

    def _tell(self) -> None:
        config, shared = self._config, self._reservations.shared
        at = addresses_of(config, shared)
        say(
            Endpoints(at.plain, at.http, at.tls, at.https),
            data_dir=config.data_dir,
            authentication=config.authentication,
        )
        own = ", ".join(str(ports.broker) for ports in self._reservations.own.values())
        _log.info(
            "ready: %d processes share port %d, admin at %d; their own ports are %s",
            config.processes,
            shared.broker,
            shared.http,
            own,
        )
        self._manager.ready()

    def _write_ready(self) -> None:
        """The ready file, written anew when a process was replaced. Only once all have served."""
        file, shared = self._config.ready_file, addresses_of(self._config, self._reservations.shared)
        if file is None:
            return
        processes = [
            {
                "number": number,
                "pid": running.process.pid,
                "broker_url": "" if running.endpoints is None else running.endpoints.broker_url,
                "http_url": "" if running.endpoints is None else running.endpoints.http_url,
            }
            for number, running in sorted(self._running.items())
        ]
        document = {
            "pid": os.getpid(),
            "broker_url": shared.plain,
            "http_url": shared.http,
            "data_dir": None if self._config.data_dir is None else str(self._config.data_dir),
            "processes": processes,
        }
        if self._storage is not None:
            document["storage_pid"] = self._storage.pid
        if shared.https:
            document |= {"broker_tls_url": shared.tls, "https_url": shared.https}
        write_ready(file, document)

    # -- processes ---------------------------------------------------------------------------------

    async def _attend(self, number: int) -> None:
        """Starts a process and stays with it to its end."""
        code = 1
        try:
            running = await self._started(number)
        except OSError as error:
            # As a process that ended at once: it is tried again later.
            _log.error("process %d cannot be started: %s", number, error)
        else:
            with running.control:
                await self._hear(number, running)
                code = await running.process.wait()
            del self._running[number]
        self._do(self._supervision.ended(number, self._now_s(), code))

    async def _started(self, number: int) -> _Running:
        ours, theirs = socket.socketpair()
        shared = self._reservations.descriptors
        inherited = [each for each in (shared.broker, shared.http, shared.broker_tls, shared.https) if each]
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", PROGRAM, str(number), str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(*inherited, theirs.fileno(), self._lock),
                    # Ctrl-C in a terminal is for the supervisor, which stops all in order.
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
            seat = Seat(
                number=number,
                own=self._reservations.own,
                shared=self._reservations.shared,
                descriptors=shared,
                control=theirs.fileno(),
                folder=self._folder,
                config=str(self._file or ""),
                overrides=self._overrides,
                storage=self._has_storage,
            )
        ours.setblocking(False)
        running = self._running[number] = _Running(process, ours)
        with contextlib.suppress(OSError):  # it has ended already: its exit code says why
            await asyncio.get_running_loop().sock_sendall(ours, seat.encode().encode() + b"\n")
        if self._supervision.stopping:
            self._signal(running, signal.SIGTERM)
        return running

    async def _hear(self, number: int, running: _Running) -> None:
        """Waits for the line of a process that serves, or its end."""
        loop, line = asyncio.get_running_loop(), b""
        while not line.endswith(b"\n"):
            try:
                piece = await loop.sock_recv(running.control, _LINE_BYTES_MAX)
            except OSError:
                # As its end.
                return
            if not piece:
                return
            line += piece
        running.endpoints = decode_ready(line)
        self._do(self._supervision.ready(number))
        self._renew_ready()

    def _renew_ready(self) -> None:
        if all(each.endpoints is not None for each in self._running.values()):
            try:
                self._write_ready()
            except StartupError as error:
                # Clients are served all the same, and the next change writes it again.
                _log.error("%s", error)
