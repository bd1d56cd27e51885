"""Our bookies as processes without a cluster, and a ledger client that knows their ports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from magnetar.base.clock import ManualClock
from magnetar.base.errors import LedgerError
from magnetar.bookie.network.server import BookieServer
from magnetar.bookie.segment_store import SegmentStore
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerClient
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.registry import LiveBookies, RegisteredBookie
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.runtime import loop as event_loop


class Marks:
    """Wakes the writer when something was confirmed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.error: LedgerError | None = None

    def durable(self, last_entry: int) -> None:
        self.changed.set()

    def failed(self, error: LedgerError) -> None:
        self.error = error
        self.changed.set()


class Bookies:
    """Bookies at ports that are known."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._live = LiveBookies(frozenset(f"127.0.0.1:{port}" for port in ports), frozenset())

    async def bookies(self) -> LiveBookies:
        return self._live

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        return RegisteredBookie(bookie_id)


def client(ports: Sequence[int]) -> LedgerClient:
    """A ledger client with metadata of its own, in memory."""
    ledgers = TreeLedgerRegistry(MemoryMetadataStore(ManualClock()), BookKeeperTree())
    return LedgerClient(Cluster(ledgers, Bookies(ports), LedgerClientOptions()))


class Bookie:
    """A bookie's process; it serves when it is made, and ends when this process does."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """`port` 0: a free one."""
        command = [sys.executable, "-m", "bench.bookie_processes", str(folder), str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid: Final = self._process.pid
        self.port: Final = self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def zeros(self) -> int:
        """Bytes that it wrote ahead of need, which are overwritten by entries or by nothing."""
        assert self._process.stdin is not None
        self._process.stdin.write("zeros\n")
        return self._answer()

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Ends it properly."""
        self._process.communicate(timeout=60)


@contextmanager
def bookie(folder: Path) -> Iterator[Bookie]:
    """A bookie that is ended properly."""
    started = Bookie(folder)
    try:
        yield started
    finally:
        started.close()


async def serve(folder: Path, port: int) -> None:
    """A bookie: says its port, answers every line, runs until its input ends."""
    store = await SegmentStore.open(folder)
    server = await BookieServer.open(store)
    sys.stdout.write(f"{await server.listen('127.0.0.1', port)}\n")
    sys.stdout.flush()
    while await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(f"{store.supply.prewriter.written_bytes}\n")
        sys.stdout.flush()
    await server.close()


if __name__ == "__main__":
    event_loop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
