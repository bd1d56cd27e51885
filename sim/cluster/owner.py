"""A broker of the simulated cluster: opens the log, appends, reads, and loses it to others."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from magnetar.base.entries import EntryRun
from magnetar.base.errors import CorruptDataError, LogError, MagnetarError
from magnetar.base.ids import LedgerId, Position
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.ledger_client import LedgerOptions
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.client.placement import RackPlacement
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.managedlog.config import ManagedLogConfig, Retention
from magnetar.managedlog.log import ManagedLog
from magnetar.managedlog.log_state import LogState
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.runtime.tasks import TaskGroup
from sim.cluster.clock import WorldClock
from sim.cluster.history import History
from sim.cluster.loop import Process
from sim.cluster.store import SimStore, StoreNode
from sim.rules import RulesInForce

LOG = "public/default/persistent/log"
OPTIONS = LedgerClientOptions(
    connect_timeout_s=0.3,
    answer_timeout_s=0.4,
    backoff_first_s=0.02,
    backoff_max_s=0.3,
    replacement_wait_s=0.4,
    call_back_s=0.4,
    speculative_read_s=0.1,
)
CONFIG = ManagedLogConfig(entries_max_per_ledger=5, rollover_ms_min=0, retention=Retention(-1, -1))
_READ_BYTES = 1 << 16
_ENTRIES_MAX = 100
"""After so many the owners take their time: what follows costs as much for each of them."""


class Owner:
    """One broker over its lives."""

    def __init__(
        self, node: StoreNode, tree: BookKeeperTree, name: str, layout: QuorumLayout, history: History
    ) -> None:
        self.name = name
        self.wants = False
        """Whether it is to have the log; it finds out between two appends."""
        self.process = Process(name)
        self.process.is_up = False
        self.is_done = False
        """After `finish`: whether the whole log was read."""
        self._node = node
        self._tree = tree
        self._world = node.world
        self._layout = layout
        self._history = history
        self._clock = WorldClock(node.world)
        self._openings = 0

    def start(self) -> None:
        """Its process begins."""
        if not self.process.is_up:
            self._begin()

    def finish(self) -> None:
        """A process that opens the log for the last time, appends, closes it and reads it all."""
        self.is_done = False
        self._begin(last=True)

    def _begin(self, *, last: bool = False) -> None:
        self._world.note(self.name, "starts")
        process = self.process = Process(self.name)
        self._node.wires.loop.start(process, self._main(SimStore(self._node, process), last=last))

    def crash(self) -> None:
        """The process is gone."""
        self._node.wires.loop.kill(self.process)

    # -- a life -------------------------------------------------------------------------------------

    def _logs(self, store: SimStore) -> ManagedLogs:
        random = self._world.random
        registry = TreeLedgerRegistry(store, self._tree, creation_token=lambda: random.getrandbits(63))
        bookies = TreeBookieRegistry(store, self._tree)
        placement = RackPlacement(shuffled=lambda names: random.sample(names, len(names)))
        cluster = Cluster(registry, bookies, OPTIONS, placement=placement, reading=RulesInForce.reading)
        client = RulesInForce.ledger_client(cluster)
        ledgers = RulesInForce.ledgers(client, LedgerOptions(layout=self._layout), self._clock)
        tasks = TaskGroup("logs")
        config = replace(CONFIG, rules=RulesInForce.log)
        return ManagedLogs(store=store, ledgers=ledgers, clock=self._clock, config=config, spawn=tasks.spawn)

    async def _main(self, store: SimStore, *, last: bool) -> None:
        logs = self._logs(store)
        opened: ManagedLog | None = None
        opening = self.name
        while True:
            if not (self.wants or last):
                await asyncio.sleep(0.02)
                continue
            try:
                log = await logs.open(LOG)
                if log is not opened:
                    opened = log
                    self._openings += 1
                    opening = f"{self.name}.{self._openings}"
                    log.listener = _Listener(self._history, opening)
                    self._world.note(opening, "opens the log", log.last_position)
                if last:
                    await self._read_all(log, opening, logs)
                    return
                await self._work(log, opening)
            except (MagnetarError, CorruptDataError) as error:
                self._world.note(opening, "is over:", type(error).__name__)
                await asyncio.sleep(0.02 + 0.2 * self._world.random.random())

    async def _work(self, log: ManagedLog, opening: str) -> None:
        random = self._world.random
        batch = random.choice((1, 2, 4))
        pause_s = random.choice((0.04, 0.08, 0.16))
        while self.wants and log.state is LogState.OPEN:
            self._append(log, opening, random.randint(1, batch))
            if random.random() < 0.05 and self._history.appended < _ENTRIES_MAX:
                for _ in range(8):
                    self._append(log, opening, 1)
            if random.random() < 0.8:
                await asyncio.sleep(pause_s * random.random())
            if random.random() < 0.1:
                await self._read_some(log)
            if random.random() < 0.03:
                await log.close()
                return
            if log.pending_bytes > 1_000 or self._history.appended > _ENTRIES_MAX:
                await asyncio.sleep(0.2)
        if log.error is not None:
            raise log.error
        if random.random() < 0.5:
            await log.close()
        else:
            # It goes on to believe that it has the log.
            while log.state is LogState.OPEN and not self.wants:
                await asyncio.sleep(0.1 * random.random())
                self._append(log, opening, 1)

    def _append(self, log: ManagedLog, opening: str, count: int) -> None:
        payloads = [f"{opening} {log.next_index + at}".encode() for at in range(count)]
        first = log.append(list(payloads))
        self._world.note(opening, "appends", first, count)
        self._history.appends(opening, first, payloads)

    async def _read_some(self, log: ManagedLog) -> None:
        first = log.first_position
        at = Position(LedgerId(first.ledger_id + self._world.random.randrange(12)), 0)
        with contextlib.suppress(MagnetarError):
            for run in await log.read(at, _READ_BYTES, 20):
                self._history.reads(self.name, run)

    async def _read_all(self, log: ManagedLog, opening: str, logs: ManagedLogs) -> None:
        for _ in range(3):
            self._append(log, opening, 3)
            await asyncio.sleep(0.01)
        await log.close()
        log = await logs.open(LOG)
        runs: list[EntryRun] = []
        at = log.first_position
        while found := await log.read(at, _READ_BYTES, 50):
            for run in found:
                self._history.reads(self.name, run)
            runs += found
            at = Position(found[-1].ledger_id, found[-1].last_entry + 1)
        await log.close()
        self._history.is_whole(runs)
        self.is_done = True
        self._world.note(opening, "has read the whole log")


class _Listener:
    """Hears what became of one opening's appends."""

    def __init__(self, history: History, opening: str) -> None:
        self._history = history
        self._opening = opening

    def appended(self, run: EntryRun) -> None:
        """From the log."""
        self._history.acknowledges(self._opening, run)

    def failed(self, error: LogError) -> None:
        """From the log: `append` says so too."""
