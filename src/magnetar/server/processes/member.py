"""One broker process of several: what it shares with the others, and its line to the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

from magnetar.base.errors import StartupError
from magnetar.broker.service import Broker
from magnetar.runtime.descriptors import SocketReceiver, Taken
from magnetar.runtime.local_calls import CallServer
from magnetar.runtime.tasks import call_later
from magnetar.server.banner import Endpoints
from magnetar.server.processes.all_metrics import METRICS, AllMetrics
from magnetar.server.processes.distant_points import DistantPoints
from magnetar.server.processes.seat import Seat, encode_ready
from magnetar.server.processes.storage_seat import with_storage
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.settings.ledger_settings import SERVED

_log = logging.getLogger("magnetar.server")

_LINE_BYTES_MAX: Final = 64
_ORPHAN_S: Final = 30.0
"""Seconds after which a process without a supervisor ends, whether it has drained or not."""


@dataclass(frozen=True, slots=True)
class SharedSockets:
    """The listening sockets of all processes; None: without TLS."""

    broker: socket.socket
    http: socket.socket
    broker_tls: socket.socket | None
    https: socket.socket | None


class SharingProcess:
    """See the module's text."""

    def __init__(self, seat: Seat, control: socket.socket) -> None:
        """`control`: the connection to the supervisor, closed by the end of the process."""
        self.seat = seat
        self._control = control
        self._control.setblocking(False)

    def config(self, config: StandaloneConfig) -> StandaloneConfig:
        """The settings of this process: its own ports and folder."""
        ports, folder = self.seat.ports, config.data_dir
        if self.seat.storage:
            config = replace(with_storage(config), metadata_url=f"{SERVED}{self.seat.folder}", bookies=0)
            # The storage process has it.
            folder = None
        return replace(
            config,
            broker_port=ports.broker,
            http_port=ports.http,
            broker_tls_port=ports.broker_tls,
            https_port=ports.https,
            data_dir=None if folder is None else folder / f"process-{self.seat.number}",
            ready_file=None,
        )

    def sockets(self) -> SharedSockets:
        """The shared listening sockets. They go on to listen in the supervisor when this process closes
        them."""
        given = self.seat.descriptors
        return SharedSockets(
            socket.socket(fileno=given.broker),
            socket.socket(fileno=given.http),
            socket.socket(fileno=given.broker_tls) if given.broker_tls else None,
            socket.socket(fileno=given.https) if given.https else None,
        )

    def receive(self, taken: Taken) -> Callable[[], None]:
        """Takes sockets from the other processes, until the result is called. Raises StartupError."""
        place = self.seat.place(self.seat.number)
        try:
            return SocketReceiver(place, taken).close
        except OSError as error:
            raise StartupError(
                f"connections of other processes cannot be received at {place}: {error.strerror or error};"
                " give another folder for temporary files with TMPDIR"
            ) from error

    @contextlib.asynccontextmanager
    async def answering(self, broker: Broker) -> AsyncIterator[None]:
        """A block in which the other processes are answered, and the broker asks them what concerns all.
        Raises StartupError."""
        metrics = AllMetrics(self.seat, broker)
        server = CallServer({METRICS: metrics.answer})
        place = self.seat.calls(self.seat.number)
        try:
            await server.start(place)
        except OSError as error:
            raise StartupError(
                f"calls of other processes cannot be answered at {place}: {error.strerror or error};"
                " give another folder for temporary files with TMPDIR"
            ) from error
        assert broker.siblings is not None, "it has joined"
        broker.siblings = replace(broker.siblings, metrics=metrics)
        if self.seat.storage_calls is not None:
            broker.points_in_time = DistantPoints(self.seat.storage_calls)
        try:
            yield
        finally:
            await server.close()

    def follow(self, broker: Broker, stop: Callable[[], None]) -> Callable[[], object]:
        """Does what the supervisor says, until the result is called: with it, all processes stop."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            try:
                line = self._control.recv(_LINE_BYTES_MAX)
            except BlockingIOError:
                # There is nothing yet; the loop calls again.
                return
            except OSError:
                # The same as its end.
                line = b""
            loop.remove_reader(self._control.fileno())
            if not line:
                _log.error("the supervisor of this process is gone: stopping")
                # A drain may wait for a metadata service that is gone too, and no second signal comes. What
                # was acknowledged is durable.
                call_later(_ORPHAN_S, os._exit, 1)
            if broker.owners is not None:
                broker.owners.peers.leaving = frozenset() if broker.siblings is None else broker.siblings.ids
            stop()

        loop.add_reader(self._control.fileno(), heard)
        return lambda: loop.remove_reader(self._control.fileno())

    def tell_ready(self, endpoints: Endpoints) -> None:
        """Tells the supervisor that clients are served."""
        self._control.sendall(encode_ready(endpoints))
