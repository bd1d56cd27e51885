"""A cluster of our bookies in this process, over loopback, with metadata in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from magnetar.base.clock import ManualClock
from magnetar.bookie.network.node import BookieNode, NodeOptions
from magnetar.bookie.network.server import ServerOptions
from magnetar.bookie.store_options import StoreOptions
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient, LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.remote.remote_ledgers import RemoteLedgers
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.cluster import initialize_cluster
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.memory import MemoryMetadataStore
from support.object_stores import free_port

_ROOM = 1 << 30


class BookieNodes:
    """Bookies that can be stopped and started. Made by `bookie_nodes`."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = MemoryMetadataStore(self.clock)
        self.tree = BookKeeperTree()
        self.registry = TreeLedgerRegistry(self.store, self.tree)
        self.bookies = TreeBookieRegistry(self.store, self.tree, claim_timeout_s=1.0)
        self.nodes: dict[str, BookieNode] = {}
        self._folder = folder
        self._ports: dict[str, int] = {}

    async def start(self, name: str, server: ServerOptions | None = None) -> None:
        """Starts a bookie, with what it had before."""
        options = NodeOptions(
            data=self._folder / name,
            port=self._ports.setdefault(name, free_port()),
            store=StoreOptions(segment_bytes=1 << 20, prewrite_bytes_per_s=0),
            server=server or ServerOptions(),
        )
        self.nodes[name] = await BookieNode.start(options, self.bookies, measure=lambda _: (_ROOM, _ROOM))

    async def stop(self, name: str) -> None:
        """Stops a bookie; its disk stays."""
        await self.nodes.pop(name).close()

    @asynccontextmanager
    async def ledgers(
        self, layout: QuorumLayout, options: LedgerClientOptions | None = None
    ) -> AsyncIterator[RemoteLedgers]:
        """The ledgers as one process sees them, until it ends without closing its writers."""
        client = LedgerClient(Cluster(self.registry, self.bookies, options))
        ledgers = RemoteLedgers(client, LedgerOptions(layout=layout), self.clock)
        try:
            yield ledgers
        finally:
            await ledgers.close()


@asynccontextmanager
async def bookie_nodes(folder: Path, count: int = 3) -> AsyncIterator[BookieNodes]:
    """Bookies named a, b, c, ... of a new cluster."""
    cluster = BookieNodes(folder)
    await initialize_cluster(cluster.store, cluster.tree, "cluster")
    try:
        for name in "abcdefgh"[:count]:
            await cluster.start(name)
        yield cluster
    finally:
        for name in list(cluster.nodes):
            await cluster.stop(name)
        await cluster.bookies.close()
        await cluster.store.close()
