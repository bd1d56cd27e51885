"""`magnetar standalone`: broker, one bookie, metadata store and admin HTTP in one process.

Order of starting: sockets are bound first (a port in use must change nothing on disk), then metadata store,
segment store, managed logs, broker. The binary port is served before other ports load their libraries; calls
that come meanwhile wait in the backlog. Order of stopping is the reverse: see docs/internals/ordering.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from magnetar.admin.serving.server import AdminServer, SharedByPorts
from magnetar.base.errors import MagnetarError
from magnetar.bookie.store_options import Durability
from magnetar.broker.service import Broker
from magnetar.broker.session.connection import Connection, SharedBuffer
from magnetar.ledger.embedded import EmbeddedLedgers
from magnetar.managedlog.logs import ManagedLogs
from magnetar.managedlog.orphans import OrphanSearch
from magnetar.runtime import loop as event_loop
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.heap import CHECK_S, Heap
from magnetar.runtime.stalls import LoopWatch
from magnetar.runtime.tasks import TaskGroup
from magnetar.server import open_files
from magnetar.server.addresses import in_url, listen, listening, own_name, reserved
from magnetar.server.banner import Endpoints, remove_ready_file, say, write_ready_file
from magnetar.server.flight_port import bound_flight_port
from magnetar.server.security import core_dumps
from magnetar.server.security.exposure import check_exposure
from magnetar.server.security.given_credentials import given_credentials
from magnetar.server.security.watched_files import CredentialFiles, read_anew
from magnetar.server.service_manager import ServiceManager
from magnetar.server.settings.broker_settings import broker_config, listeners_of, log_config
from magnetar.server.settings.config import StandaloneConfig, default_data_dir, names
from magnetar.server.settings.limit_settings import client_entrance
from magnetar.server.settings.sql_settings import query_bounds
from magnetar.server.storage.datafolder import DataFolder
from magnetar.server.storage.measured_disk import look_at_disk
from magnetar.server.storage.message_stores import open_stores
from magnetar.server.storage.opened_stores import Kept, MessageStores
from magnetar.server.storage.storage_losses import holes_of
from magnetar.server.tiering import Tiering, open_tiering

if TYPE_CHECKING:
    from magnetar.auth.authentication import Authentication
    from magnetar.flightsql.server import FlightServer
    from magnetar.server.processes.member import SharingProcess
    from magnetar.server.security.credential_files import BrokerCredentials

_log = logging.getLogger("magnetar.server")

_ORPHANS_S = 600
"""Seconds between two searches for unnamed ledgers."""
_DISK_S = 1
"""Seconds between two measurements of the disk."""


def run(config: StandaloneConfig, *, shares: bool = False, member: SharingProcess | None = None) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. `shares`: one of several brokers; `member`: one of several
    processes of this machine. Raises StartupError."""
    open_files.raise_limit()
    if config.holds_secrets:
        core_dumps.forbid()
    return event_loop.run(_serve(config, shares=shares, member=member))


async def _serve(config: StandaloneConfig, *, shares: bool, member: SharingProcess | None) -> int:
    manager = ServiceManager.taken()
    server = Standalone(config, shares=shares, member=member)
    try:
        await server.start()
        if member is not None:
            member.tell_ready(server.endpoints)
        else:
            say(server.endpoints, data_dir=server.data_dir, authentication=config.authentication)
        _log.info("ready: clients at %s, admin at %s", server.endpoints.broker_url, server.endpoints.http_url)
        server.begin_rest()
        manager.ready()
        code = await server.wait()
        manager.stopping()
    finally:
        await server.close()
    _log.info("stopped")
    return code


class Standalone:
    """The composed process. `start`, then `wait`, then `close`, which is safe at any stage."""

    def __init__(
        self, config: StandaloneConfig, *, shares: bool = False, member: SharingProcess | None = None
    ) -> None:
        """`shares`: it is one of several brokers of a cluster; `member`: of this machine."""
        self.config = config
        self._shares = shares
        self._member = member
        self.endpoints = Endpoints("", "")
        """Where it is reached; set by `start`."""
        needs_folder = not (shares or config.ephemeral)
        self.data_dir = config.data_dir or (default_data_dir() if needs_folder else None)
        """Folder of everything durable; None when nothing is kept."""
        self._clock = SystemClock()
        self._tasks = TaskGroup("standalone")
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._cleanup = contextlib.AsyncExitStack()
        self._admins: list[AdminServer] = []
        self._clients = client_entrance(config)
        self._callers = SharedByPorts(open_files.http_entrance(), query_bounds(config))
        self._broker: Broker
        self._tiering: Tiering
        self._files: list[CredentialFiles] = []  # SIGHUP has them read anew.
        self._terminal = os.isatty(0)  # If it has a terminal, SIGHUP says that the terminal was closed.
        self._backed_up: tuple[DataFolder, Kept] | None = None
        """What a backup copies; None: the messages do not lie in one folder here."""
        self._flight: FlightServer | None = None
        self._heap: Heap
        self._watch: LoopWatch

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means in this process."""
        return Durability.VOLATILE if self.config.ephemeral else Durability.FSYNC

    async def start(self) -> None:
        """Returns when a client's produce is accepted. Raises StartupError."""
        config = self.config
        self._handle_signals()
        self._cleanup.push_async_callback(self._callers.close)
        check_exposure(config)
        if self._shares:
            from magnetar.server import membership

            membership.check(config)
        credentials = given_credentials(config)
        tls = None if credentials is None else credentials.tls
        plain = config.plain_host or config.host
        listener = self._bind(plain, config.broker_port, "--port")
        tls_listener = (
            None if tls is None else self._bind(config.host, config.broker_tls_port, "broker_tls_port")
        )
        flight = bound_flight_port(config, credentials, self._bind)
        broker = await self._compose(None if credentials is None else credentials.authentication)
        if credentials is not None:
            self._renew(credentials, broker)
        host = in_url(plain)
        http_port = self._admin(broker, plain, config.http_port, None)
        tls_port = https_port = 0
        self.endpoints = Endpoints(
            f"pulsar://{host}:{listener.getsockname()[1]}", f"http://{host}:{http_port}"
        )
        if tls is not None and tls_listener is not None:
            tls_port = tls_listener.getsockname()[1]
            https_port = self._admin(broker, config.host, config.https_port, tls)
            host = in_url(config.host)
            self.endpoints = replace(
                self.endpoints,
                broker_tls_url=f"pulsar+ssl://{host}:{tls_port}",
                https_url=f"https://{host}:{https_port}",
            )
        if flight is not None:
            self.endpoints = replace(self.endpoints, flight_sql_url=flight.url)
            self._flight = flight.served(broker, self._callers, self._cleanup)
        broker.listeners = listeners_of(config, listener.getsockname()[1], http_port, tls_port, https_port)
        broker.broker_id = f"{own_name(config.advertised_address, plain)}:{http_port}"
        if self._shares:
            membership.join(broker, config, self.endpoints, self._clock, self._member)
        await broker.start(self.endpoints.broker_url, self.endpoints.http_url)
        self._broker = broker
        self._listen(broker, listener, None)
        if tls_listener is not None:
            self._listen(broker, tls_listener, tls)
        if self._member is not None:
            self._share_ports(self._member, broker, tls)
            await self._cleanup.enter_async_context(self._member.answering(broker))
        if config.ready_file is not None:
            write_ready_file(config.ready_file, self.endpoints, data_dir=self.data_dir)
            self._cleanup.callback(remove_ready_file, config.ready_file)

    def _renew(self, credentials: BrokerCredentials, broker: Broker) -> None:
        """Has files of credentials read anew, now and then and when SIGHUP asks for it."""

        def changed() -> None:
            if (authentication := credentials.authentication) is not None:
                broker.credentials_changed(authentication)

        credentials.files.changed = changed
        self._files.append(credentials.files)
        broker.collectors.append(credentials.files.collect)
        if credentials.files.watched:
            self._tasks.every(self.config.credential_refresh_seconds, credentials.files.look)

    def _take_from(self, stores: MessageStores, folder: DataFolder | None, broker: Broker) -> None:
        broker.bookies = stores.bookies
        self._files += [] if stores.credentials is None else [stores.credentials]
        if folder is not None and stores.kept is not None:
            self._backed_up = folder, stores.kept

    def _share_ports(self, member: SharingProcess, broker: Broker, tls: ssl.SSLContext | None) -> None:
        """Serves the ports that this process shares with others, and takes connections from them."""
        sockets = member.sockets()
        acceptor = self._listen(broker, sockets.broker, None)
        if sockets.broker_tls is not None:
            self._listen(broker, sockets.broker_tls, tls)
        for shared, context in ((sockets.http, None), (sockets.https, tls)):
            if shared is not None:
                self._admin(broker, "", 0, context, shared)
        buffer = SharedBuffer()

        def take(taken: socket.socket, first: bytes) -> None:
            acceptor.take(taken, lambda: Connection(broker, buffer, first))

        self._cleanup.callback(member.receive(take))
        self._cleanup.callback(member.follow(broker, self._stop.set))

    def _admin(
        self,
        broker: Broker,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        listener: socket.socket | None = None,
    ) -> int:
        """Binds the port of an admin service; `settle` begins to serve it. `listener`: it is bound."""
        admin = AdminServer(
            broker, host=host, port=port, ssl_context=tls, shared=self._callers, listener=listener
        )
        self._cleanup.push_async_callback(admin.stop)
        self._admins.append(admin)
        return admin.listen()

    def _bind(self, host: str, port: int, option: str) -> socket.socket:
        # One of several processes listens when it serves: until then it refuses clients, and so counts as
        # gone.
        bound = (listening if self._member is None else reserved)(host, port, option)
        self._cleanup.callback(bound.close)
        return bound

    async def _compose(self, authentication: Authentication | None) -> Broker:
        """Opens the stores and puts the roles together."""
        config = self.config
        folder: DataFolder | None = None
        if self.data_dir is not None:
            folder = DataFolder(self.data_dir)
            self._cleanup.callback(folder.release)
        stores = await open_stores(
            config,
            folder,
            clock=self._clock,
            cleanup=self._cleanup,
            spawn=self._tasks.spawn,
            failed=self._storage_failed,
            shares=self._shares,
        )
        store, ledgers = stores.metadata, stores.ledgers
        tiering = self._tiering = await open_tiering(config, folder, stores, self._clock, shares=self._shares)
        logs = ManagedLogs(
            store=store,
            ledgers=ledgers,
            clock=self._clock,
            config=log_config(config, for_pulsar=stores.adopted),
            spawn=self._tasks.spawn,
            tiers=tiering.storage,
            holes=await holes_of(config, stores, folder, self._cleanup, shares=self._shares),
        )
        self._cleanup.push_async_callback(self._tasks.close)
        self._cleanup.push_async_callback(logs.close)
        if stores.listing is not None:
            grace_s = config.quarantine_grace_seconds
            search = OrphanSearch(store, ledgers, stores.listing, stores.trust, grace_s, _ORPHANS_S)
            self._tasks.every(_ORPHANS_S, search.round)
        broker = Broker(
            config=replace(broker_config(config), adopted=stores.adopted),
            store=store,
            logs=logs,
            clock=self._clock,
            authentication=authentication,
            superuser_roles=frozenset(names(config.superuser_roles)),
            offloading=tiering.offered,
        )
        self._take_from(stores, folder, broker)
        if folder is not None and isinstance(ledgers, EmbeddedLedgers):
            self._tasks.every(_DISK_S, partial(look_at_disk, broker, folder.root))
        tiering.begin(broker, stores.syncer)
        self._cleanup.push_async_callback(tiering.close)
        self._heap = Heap(lambda: broker.ended)
        self._watch = LoopWatch(lambda: self._heap.pause_s)
        of_process = [self._watch.collect_metrics, self._heap.collect_metrics]
        of_sockets = [self._clients.collect_metrics, self._callers.entrance.collect_metrics]
        broker.collectors += [*stores.collectors, *of_process, *of_sockets, logs.holes.collect]
        self._cleanup.push_async_callback(broker.close)
        self._cleanup.push_async_callback(broker.drain)
        return broker

    def _listen(self, broker: Broker, bound: socket.socket, tls: ssl.SSLContext | None) -> Acceptor:
        shared = SharedBuffer()
        listen(bound, "--port")
        acceptor = Acceptor(
            bound,
            self._clients,
            lambda: Connection(broker, shared),
            tls=tls,
            handshake_s=self.config.connect_timeout_seconds,
            make_room=lambda address: not address and broker.greetings.drop_oldest() is not None,
        )
        self._cleanup.callback(acceptor.close)
        return acceptor

    def _stand_beside(self, broker: Broker) -> None:
        """What no client of the binary protocol waits for; imported here."""
        from magnetar.server.functions import FunctionsBeside, folder_of, has_functions
        from magnetar.server.watching import watch_over

        watch = watch_over(broker, self.config, self.endpoints.http_url, self._tasks, shares=self._shares)
        if watch is not None:
            self._cleanup.push_async_callback(watch)
        if has_functions(self.config, self._member, shares=self._shares):
            files = folder_of(self.config, self.data_dir, self._member)
            functions = FunctionsBeside(broker, self.config, files, self._clock, self.endpoints)
            functions.begin()
            self._cleanup.push_async_callback(functions.close)

    def _let_back_up(self, broker: Broker) -> None:
        if self._backed_up is None:
            return
        from magnetar.server.backup.staging import Staging

        broker.points_in_time = staging = Staging(*self._backed_up, self._clock)
        self._cleanup.push_async_callback(staging.close)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def begin_rest(self) -> None:
        """Called once after `start`: begins what clients of the binary protocol need not wait for."""
        self._stand_beside(self._broker)
        self._let_back_up(self._broker)
        self._tiering.load_tables()
        for admin in self._admins:
            admin.serve()
        if self._flight is not None:
            self._tasks.spawn(self._flight.serve())
        self._tasks.spawn(self._settle())

    async def _settle(self) -> None:
        """Once everything is loaded: what lives now is left to no collector, and stalls are watched."""
        for admin in self._admins:
            await admin.serving()
        if self._stop.is_set():
            return
        self._heap.settle()
        self._cleanup.callback(self._heap.close)
        self._watch.start()
        self._cleanup.callback(self._watch.close)
        self._tasks.every(CHECK_S, self._heap.collect_if_due)

    def _signalled(self, number: int) -> None:
        if self._stop.is_set():
            # The second signal: no more waiting. Acknowledged messages are durable already.
            if self.config.ready_file is not None:
                remove_ready_file(self.config.ready_file)
            os._exit(128 + number)
        _log.info("%s: stopping", signal.Signals(number).name)
        self._stop.set()

    def _hung_up(self) -> None:
        if self._terminal and not os.isatty(0):
            self._signalled(signal.SIGHUP)
        else:
            self._tasks.spawn(read_anew(self._files))

    def _storage_failed(self, error: MagnetarError) -> None:
        """The bookie takes no more: acknowledging stops here and the process leaves."""
        sys.stderr.write(f"magnetar: {error}\n")
        self._exit_code = 1
        self._stop.set()

    async def wait(self) -> int:
        """Returns the exit code once the process is told to stop or cannot go on."""
        await self._stop.wait()
        return self._exit_code

    async def close(self) -> None:
        """Drains and stops everything that was started, in reverse order."""
        await self._cleanup.aclose()
