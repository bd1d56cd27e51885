"""The process of `magnetar proxy`: clients reach the brokers of a cluster through it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import magnetar
from magnetar.auth.identity import METHOD_TLS
from magnetar.base.errors import StartupError
from magnetar.broker.identification import Identification
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.metadata.adoption import store_of_cluster
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.proxy.client_connection import ClientConnection
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.members import Members
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.splice import ReadBuffer
from magnetar.runtime import loop as event_loop
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import begin
from magnetar.server import open_files
from magnetar.server.addresses import in_url, listening
from magnetar.server.banner import remove_ready_file, write_ready
from magnetar.server.security import core_dumps
from magnetar.server.security.exposure import check_exposure
from magnetar.server.security.proxy_credentials import ProxyCredentials
from magnetar.server.security.watched_files import CredentialFiles, read_anew
from magnetar.server.service_manager import ServiceManager
from magnetar.server.settings.config import StandaloneConfig, names
from magnetar.server.settings.limit_settings import client_entrance
from magnetar.server.settings.proxy_settings import ProxySettings

if TYPE_CHECKING:
    from magnetar.proxy.http_app import ProxyApp
    from magnetar.server.security.credential_files import BrokerCredentials

_log = logging.getLogger("magnetar.server")

_SOCKETS_EACH = 2
"""A client costs a descriptor, and its connection to a broker another one."""


def run(config: StandaloneConfig, settings: ProxySettings) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. Raises StartupError, MetadataError."""
    open_files.raise_limit()
    if config.holds_secrets:
        core_dumps.forbid()
    return event_loop.run(_serve(config, settings))


async def _serve(config: StandaloneConfig, settings: ProxySettings) -> int:
    manager = ServiceManager.taken()
    process = ProxyProcess(config, settings)
    try:
        await process.start()
        manager.ready()
        await process.wait()
        manager.stopping()
    finally:
        await process.close()
    _log.info("stopped")
    return 0


class ProxyProcess:
    """The composed process. `start`, then `wait`, then `close`, which is safe at any stage."""

    def __init__(self, config: StandaloneConfig, settings: ProxySettings) -> None:
        self._config = config
        self._settings = settings
        self._clock = SystemClock()
        self._stop = asyncio.Event()
        self._cleanup = contextlib.AsyncExitStack()
        self._clients = client_entrance(config, sockets_each=_SOCKETS_EACH)
        self._callers = open_files.http_entrance()
        self._terminal = os.isatty(0)
        """Whether the process has a terminal; if so, SIGHUP says that the terminal was closed."""
        self._files: list[CredentialFiles] = []
        """Files that SIGHUP has read anew."""
        self._acceptors: list[tuple[Acceptor, socket.socket]] = []
        self._proxy: Proxy

    async def start(self) -> None:
        """Returns when clients are served. Raises StartupError, MetadataError."""
        config, settings = self._config, self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        check_exposure(config)
        plain = config.plain_host or config.host
        listener = self._bind(plain, config.broker_port, "--port")
        credentials = None
        if config.authentication or config.tls_certificate is not None:
            # Without both there is nothing to load.
            from magnetar.server.security.credential_files import BrokerCredentials

            credentials = BrokerCredentials(config)
        served = None if credentials is None else credentials.tls
        tls_listener = (
            None if served is None else self._bind(config.host, config.broker_tls_port, "broker_tls_port")
        )
        identification = None
        if credentials is not None and (authentication := credentials.authentication) is not None:
            identification = Identification(authentication, self._clock)
        own = ProxyCredentials(settings)
        if own.own is not None and identification is None:
            raise StartupError(
                "the proxy would lend its credentials to every client: configure authentication here too, or"
                " give it none, so that brokers see those of the clients"
            )
        targets = KnownBrokers(tls=settings.broker_tls)
        proxy = self._proxy = Proxy(
            ProxyOptions(
                forwards_credentials=settings.forward_credentials,
                connect_s=config.connect_timeout_seconds,
                lookups_max=settings.lookups_max,
                links_max=max(1, open_files.affordable_sockets().clients // _SOCKETS_EACH),
            ),
            targets,
            self._clock,
            identify=None if identification is None else identification.identify,
            counts=None if identification is None else lambda who: identification.authentication.counts(who),
            credentials=own.own,
            rejected=lambda: sum(self._clients.refused.values()),
        )
        self._cleanup.push_async_callback(proxy.close)
        await self._know_brokers(proxy, targets)
        proxy.begin()
        self._listen(listener, None, own.tls)
        tls_url = https_url = ""
        certificates = identification is not None and METHOD_TLS in names(config.authentication)
        app = self._app(own.tls, certificates=certificates)
        if tls_listener is not None:
            self._listen(tls_listener, served, own.tls)
            https_url = await self._serve_http(app, config.host, config.https_port, served)
            tls_url = f"pulsar+ssl://{in_url(config.host)}:{tls_listener.getsockname()[1]}"
        self._renew(credentials, identification, own)
        http_url = await self._serve_http(app, plain, config.http_port, None)
        self._cleanup.push_async_callback(self._drain)
        self._tell(f"pulsar://{in_url(plain)}:{listener.getsockname()[1]}", tls_url, http_url, https_url)

    def _app(self, to_brokers: ssl.SSLContext | None, *, certificates: bool) -> ProxyApp:
        # Loading the HTTP stack takes as long as the rest of the start.
        from magnetar.proxy.http_app import ProxyApp

        superusers = frozenset(names(self._config.superuser_roles))
        app = ProxyApp(self._proxy, superusers=superusers, tls=to_brokers, takes_certificates=certificates)
        app.collects(lambda out: [each for files in self._files for each in files.collect(out)])
        return app

    async def _serve_http(self, app: ProxyApp, host: str, port: int, tls: ssl.SSLContext | None) -> str:
        """Begins to serve the HTTP port, with `tls` as HTTPS; its URL."""
        from magnetar.admin.serving.certified_calls import CertifiedCalls
        from magnetar.admin.serving.loop_server import LoopServer, config_of

        listener = self._bind(host, port, "--http-port" if tls is None else "https_port")
        served = config_of(app, http=CertifiedCalls, ws=app.sockets)
        served.ssl = tls
        server = LoopServer(served, self._callers)
        serving = asyncio.Event()
        task = begin(server.run_on(listener, serving))

        async def stop() -> None:
            server.stop()
            await task

        self._cleanup.push_async_callback(stop)
        await serving.wait()
        return f"{'http' if tls is None else 'https'}://{in_url(host)}:{listener.getsockname()[1]}"

    def _renew(
        self,
        credentials: BrokerCredentials | None,
        identification: Identification | None,
        own: ProxyCredentials,
    ) -> None:
        """Has files of credentials read anew, now and then and when SIGHUP asks for it."""

        def changed() -> None:
            assert credentials is not None, "they have changed"
            authentication = credentials.authentication
            if identification is not None and authentication is not None:
                identification.change(authentication)

        own.files.changed = lambda: self._proxy.credentials_changed(own.own)
        self._files = [own.files]
        if credentials is not None:
            credentials.files.changed = changed
            self._files.append(credentials.files)
        for files in self._files:
            if files.watched:
                self._proxy.tasks.every(self._config.credential_refresh_seconds, files.look)

    def _hung_up(self) -> None:
        if self._terminal and not os.isatty(0):
            self._stop.set()
        else:
            self._proxy.tasks.spawn(read_anew(self._files))

    async def _know_brokers(self, proxy: Proxy, targets: KnownBrokers) -> None:
        config, settings = self._config, self._settings
        if settings.brokers:
            targets.replace(listed(settings))
            return
        url = parse_metadata_url(config.metadata_url)
        if url.kind not in ("zk", "etcd"):
            raise StartupError(
                "a proxy must know the brokers: give --metadata zk://… or etcd://…, or --brokers pulsar://…"
            )
        store = await open_metadata(url, self._clock)
        self._cleanup.push_async_callback(store.close)
        # Our brokers are below the cluster's own node unless it was adopted, Pulsar's at the top.
        own, adopted = await store_of_cluster(store, config.cluster)
        stores = (own,) if adopted else (own, store)
        members = Members(stores, targets, proxy.tasks)
        self._cleanup.callback(members.close)
        await members.load()

    def _bind(self, host: str, port: int, option: str) -> socket.socket:
        bound = listening(host, port, option)
        self._cleanup.callback(bound.close)
        return bound

    def _listen(
        self, bound: socket.socket, served: ssl.SSLContext | None, to_brokers: ssl.SSLContext | None
    ) -> None:
        proxy, shared = self._proxy, ReadBuffer()
        acceptor = Acceptor(
            bound,
            self._clients,
            lambda: ClientConnection(proxy, shared, to_brokers),
            tls=served,
            handshake_s=self._config.connect_timeout_seconds,
            make_room=lambda address: not address and proxy.greetings.drop_oldest() is not None,
        )
        self._cleanup.callback(acceptor.close)
        self._acceptors.append((acceptor, bound))

    def _tell(self, url: str, tls_url: str, http_url: str, https_url: str) -> None:
        sys.stdout.write(f"Magnetar {magnetar.__version__} proxy is ready\n\n  Pulsar clients   {url}\n")
        if tls_url:
            sys.stdout.write(f"  Over TLS         {tls_url}\n")
        sys.stdout.write(f"  Admin, metrics   {http_url}\n")
        if https_url:
            sys.stdout.write(f"  Over TLS         {https_url}\n")
        sys.stdout.flush()
        _log.info("ready: clients at %s", url)
        if (file := self._config.ready_file) is not None:
            told = {
                "broker_url": url,
                "broker_tls_url": tls_url,
                "http_url": http_url,
                "https_url": https_url,
            }
            write_ready(file, {"pid": os.getpid(), **told})
            self._cleanup.callback(remove_ready_file, file)

    async def _drain(self) -> None:
        for acceptor, bound in self._acceptors:
            # Also the socket, whose queue would take clients that get no answer any more.
            acceptor.close()
            bound.close()
        await self._proxy.drain(self._settings.drain_seconds)

    async def wait(self) -> None:
        """Returns when the process is told to stop."""
        await self._stop.wait()
        _log.info("stopping")

    async def close(self) -> None:
        """Drains and stops everything that was started, in reverse order."""
        await self._cleanup.aclose()


def listed(settings: ProxySettings) -> Iterator[BrokerUrls]:
    """The brokers that the settings list. Raises StartupError."""
    for url in _urls(settings.brokers):
        try:
            parts = urlsplit(url)
            whole = bool(parts.hostname and parts.port)
        except ValueError:
            whole = False
        if not whole or parts.scheme != ("pulsar+ssl" if settings.broker_tls else "pulsar"):
            raise StartupError(
                f"brokers: {url!r} is not {'pulsar+ssl' if settings.broker_tls else 'pulsar'}://host:port,"
                " as broker_tls says"
            )
        yield BrokerUrls(Addresses(tls=url) if settings.broker_tls else Addresses(plain=url))
    for url in _urls(settings.brokers_http):
        yield BrokerUrls(Addresses(https=url) if settings.broker_tls else Addresses(http=url))


def _urls(text: str) -> Iterator[str]:
    """The URLs of a list. As in Pulsar's service URLs, one scheme may stand before several addresses."""
    scheme = ""
    for each in names(text):
        url = f"{scheme}://{each}" if scheme and "://" not in each else each
        scheme = url.partition("://")[0]
        yield url
