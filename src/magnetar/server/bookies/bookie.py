"""The process of `magnetar bookie`: one bookie of a cluster with shared metadata."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import magnetar
from magnetar.base.errors import StartupError
from magnetar.bookie.network.fullness import FullnessOptions
from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.bookie.network.server import ServerOptions
from magnetar.bookie.store_options import StoreOptions
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster, open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError, LedgerLayout
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.opening import MetadataUrl, open_metadata, parse_metadata_url
from magnetar.metadata.store import MetadataStore
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import TaskGroup, race, won
from magnetar.server import open_files
from magnetar.server.banner import remove_ready_file, write_ready
from magnetar.server.bookies.bookie_security import BookieCredentials, BookieSecurity
from magnetar.server.security import core_dumps
from magnetar.server.service_manager import ServiceManager
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX

if TYPE_CHECKING:
    from magnetar.server.bookies.bookie_http import BookieHttp

_log = logging.getLogger("magnetar.server")

_ROOM_SHARE: Final = 0.02
"""Share of the disk by which a full disk must become emptier before the bookie takes entries again."""
_LOOK_S: Final = 60.0
"""Seconds between two checks for changed files of credentials."""
_CLAIM_MARGIN_S: Final = 5.0
"""Seconds, beyond the session's length, to wait until the registration of this bookie's last process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig:
    """Settings of one bookie."""

    metadata: str
    """URL of the cluster's metadata service: zk://HOST:PORT/ledgers, etcd://HOST:PORT/ledgers."""
    data: Path
    more_data: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 3181
    advertised: str | None = None
    bookie_id: str | None = None
    """This and the next five: see NodeOptions."""
    collect_interval_s: float = 600.0
    """Seconds between two searches for deleted ledgers."""
    session_timeout_s: float = 30.0
    """Seconds without contact after which the cluster takes this bookie for dead."""
    full_share: float = 0.95
    """Used share of the disk, 0 to 1, from which the bookie is read-only, until 0.02 less are in use."""
    sort_after_reads: int = 0
    """See StoreOptions."""
    packet_bytes_max: int = PACKET_BYTES_MAX
    """Largest request, `nettyMaxFrameSizeBytes` of Apache's bookies: a larger one closes its connection."""
    initialize: bool = False
    """Whether to make the tree of a new cluster when there is none."""
    ready_file: Path | None = None
    http_port: int | None = None
    """Port of HTTP admin and metrics; 0: a free port; None: no port."""
    http_host: str = "127.0.0.1"
    http_changes: bool = False
    """See BookiePages."""
    security: BookieSecurity = field(default_factory=BookieSecurity)

    def node_options(self, credentials: BookieCredentials) -> NodeOptions:
        """The options of the node."""
        return NodeOptions(
            data=self.data,
            more_data=self.more_data,
            host=self.host,
            port=self.port,
            advertised=self.advertised,
            bookie_id=self.bookie_id,
            claim_timeout_s=self.session_timeout_s + _CLAIM_MARGIN_S,
            collect_interval_s=self.collect_interval_s,
            fullness=FullnessOptions(full_share=self.full_share, room_share=self.full_share - _ROOM_SHARE),
            store=StoreOptions(sort_after_reads=self.sort_after_reads),
            server=ServerOptions(
                tls=credentials.tls,
                access=credentials.access,
                connections_max=open_files.affordable_sockets().clients,
                packet_bytes_max=self.packet_bytes_max,
            ),
        )


def run(config: BookieConfig) -> int:
    """Runs until SIGTERM or SIGINT, or until its disk fails; returns the exit code.

    Raises StartupError, also for a URL that is none.
    """
    open_files.raise_limit()
    if config.security.tls_key is not None or config.security.users is not None:
        core_dumps.forbid()
    return event_loop.run(_serve(config, parse_metadata_url(config.metadata)))


async def _serve(config: BookieConfig, url: MetadataUrl) -> int:
    manager = ServiceManager.taken()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    credentials = BookieCredentials(config.security)
    tasks = TaskGroup("credentials")
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.spawn(credentials.files.look(always=True)))
    tasks.every(_LOOK_S, credentials.files.look)
    session_timeout_ms = round(config.session_timeout_s * 1_000)
    store = await open_metadata(url, SystemClock(), session_timeout_ms=session_timeout_ms)
    try:
        registry = await _registry(url, store, initialize=config.initialize)
        node = await BookieNode.start(config.node_options(credentials), registry)
        http = None
        try:
            if config.http_port is not None:
                http = await _open_http(config, config.http_port, node, registry)
            _tell(config, node, None if http is None else http.port)
            manager.ready()
            code = await _until_over(node, stop)
            manager.stopping()
            return code
        finally:
            if http is not None:
                await http.stop()
            await node.close()
            if config.ready_file is not None:
                remove_ready_file(config.ready_file)
    finally:
        await tasks.close()
        await store.close()


async def _registry(url: MetadataUrl, store: MetadataStore, *, initialize: bool) -> TreeBookieRegistry:
    try:
        if initialize:
            layout = url.layout or LedgerLayout.HIERARCHICAL
            await initialize_cluster(store, BookKeeperTree(url.root, layout), str(uuid.uuid4()))
        tree = await open_tree(store, url.root, layout=url.layout)
    except ClusterNotInitializedError as error:
        raise StartupError(f"{error}; --initialize makes a new one") from error
    except LayoutError as error:
        raise StartupError(str(error)) from error
    return TreeBookieRegistry(store, tree)


async def _open_http(
    config: BookieConfig, port: int, node: BookieNode, registry: TreeBookieRegistry
) -> BookieHttp:
    # A process without an HTTP port need not load the HTTP stack.
    from magnetar.server.bookies.bookie_http import BookieHttp
    from magnetar.server.bookies.bookie_pages import BookiePages

    pages = BookiePages(node, registry, changes=config.http_changes)
    return await BookieHttp.start(pages, config.http_host, port)


def _tell(config: BookieConfig, node: BookieNode, http_port: int | None) -> None:
    mode = "read-only: the disk is full" if node.read_only else "writable"
    lines = [
        f"Magnetar {magnetar.__version__} bookie {node.bookie_id} is ready ({mode})",
        f"  Ledger clients   {config.host}:{node.port}",
        f"  Data             {', '.join(map(str, (config.data, *config.more_data)))}",
        "",
    ]
    if http_port is not None:
        lines.insert(2, f"  HTTP             http://{config.http_host}:{http_port}")
    sys.stdout.write("\n".join(lines))
    sys.stdout.flush()
    if config.ready_file is not None:
        told = {"bookie_id": node.bookie_id, "port": node.port, "pid": os.getpid(), "http_port": http_port}
        write_ready(config.ready_file, told)


async def _until_over(node: BookieNode, stop: asyncio.Event) -> int:
    failing, _ = await race(node.failed(), stop.wait())
    if won(failing):
        _log.critical("the bookie ends: %s", failing.result())
        return 1
    return 0
