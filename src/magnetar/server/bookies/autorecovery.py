"""The process of `magnetar autorecovery`: replaces the copies that lost bookies had."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import magnetar
from magnetar.base.errors import StartupError
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import TaskGroup
from magnetar.server.banner import remove_ready_file, write_ready
from magnetar.server.bookies.ledger_access import LedgerCredentials, client_options
from magnetar.server.security import core_dumps
from magnetar.server.service_manager import ServiceManager
from magnetar.server.settings.ledger_settings import LedgerSettings

if TYPE_CHECKING:
    from magnetar.server.bookies.bookie_http import BookieHttp


_LOOK_S: Final = 60.0
"""Seconds between two looks at files of credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """Settings of one node of auto-recovery."""

    metadata: str
    """URL of the cluster's metadata service."""
    node_id: str | None
    """Name of the node in votes and locks; None: host and process id."""
    lost_bookie_delay_s: int = 0
    open_ledger_grace_s: float = 30.0
    check_all_s: float = 604_800.0
    check_share: float = 0.0
    check_replicas_s: float = 0.0
    check_placement_s: float = 0.0
    racks_min: int = 2
    racks_path: str = BOOKIE_RACKS
    bytes_per_s: float | None = None
    """This and the next eight: see `RecoveryOptions`."""
    session_timeout_ms: int = 30_000
    """Milliseconds without contact after which another node takes over the work of this one."""
    ready_file: Path | None = None
    bookies: LedgerSettings = field(default_factory=LedgerSettings)
    """TLS, user and password for bookies; other settings are ignored."""
    http_port: int | None = None
    """Port of HTTP admin and metrics; 0: a free port; None: no port."""
    http_host: str = "127.0.0.1"
    http_changes: bool = False
    """Take changes on that port also when bookies get TLS or credentials."""

    @property
    def takes_changes(self) -> bool:
        """Whether callers of the HTTP port, which show nothing, may change something. Where bookies protect
        themselves by TLS or credentials, the operator must allow it."""
        return self.http_changes or not (self.bookies.bookie_tls or self.bookies.bookie_user)


def run(config: AutoRecoveryConfig) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises StartupError, MetadataError."""
    if config.bookies.holds_bookie_secrets:
        core_dumps.forbid()
    return event_loop.run(_serve(config))


async def _serve(config: AutoRecoveryConfig) -> int:
    manager = ServiceManager.taken()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    credentials = LedgerCredentials(config.bookies)
    tasks = TaskGroup("credentials")
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.spawn(credentials.files.look(always=True)))
    tasks.every(_LOOK_S, credentials.files.look)
    clock, url = SystemClock(), parse_metadata_url(config.metadata)
    options = RecoveryOptions(
        node_id=config.node_id or f"{socket.gethostname()}-{os.getpid()}",
        lost_bookie_delay_s=config.lost_bookie_delay_s,
        open_ledger_grace_s=config.open_ledger_grace_s,
        check_all_s=config.check_all_s,
        check_share=config.check_share,
        check_replicas_s=config.check_replicas_s,
        check_placement_s=config.check_placement_s,
        racks_min=config.racks_min,
        racks_path=config.racks_path,
        bytes_per_s=config.bytes_per_s,
    )
    access = client_options(config.bookies, credentials=credentials)
    store = await open_metadata(url, clock, session_timeout_ms=config.session_timeout_ms)
    try:
        try:
            tree = await open_tree(store, url.root, layout=url.layout)
        except (ClusterNotInitializedError, LayoutError) as error:
            raise StartupError(str(error)) from error
        node = await AutoRecoveryNode.start(store, tree, clock, options, access)
        http = None
        try:
            if config.http_port is not None:
                http = await _open_http(config, config.http_port, node)
            _tell(config, options.node_id, None if http is None else http.port)
            manager.ready()
            await stop.wait()
            manager.stopping()
        finally:
            if http is not None:
                await http.stop()
            await node.close()
            if config.ready_file is not None:
                remove_ready_file(config.ready_file)
    finally:
        await tasks.close()
        await store.close()
    return 0


async def _open_http(config: AutoRecoveryConfig, port: int, node: AutoRecoveryNode) -> BookieHttp:
    # A process without an HTTP port need not load the HTTP stack.
    from magnetar.server.bookies.autorecovery_pages import AutoRecoveryPages
    from magnetar.server.bookies.bookie_http import BookieHttp

    pages = AutoRecoveryPages(node, takes_changes=config.takes_changes)
    return await BookieHttp.start(pages, config.http_host, port)


def _tell(config: AutoRecoveryConfig, node_id: str, http_port: int | None) -> None:
    sys.stdout.write(f"Magnetar {magnetar.__version__} auto-recovery {node_id} is ready\n")
    if http_port is not None:
        sys.stdout.write(f"  HTTP             http://{config.http_host}:{http_port}\n")
    sys.stdout.flush()
    if config.ready_file is not None:
        write_ready(config.ready_file, {"node_id": node_id, "pid": os.getpid(), "http_port": http_port})
