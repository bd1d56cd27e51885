"""One life of a broker that may be killed at any step, on ledgers and metadata that outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker, BrokerConfig
from magnetar.broker.transactions.transactions import Transactions
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import ANY_VERSION, Notification, Operation, Stat
from magnetar.runtime.tasks import TaskGroup
from sim.broker.client import Home, Line
from sim.broker.storage import SimLedgers, SimStore, Weather
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process, SimLoop
from sim.rules import RulesInForce
from sim.world import World


class Trap:
    """Kills the broker at a write of metadata: before the write takes effect, or after it and before its
    caller learns of it."""

    def __init__(self, path: str, *, skip: int, after: bool) -> None:
        """`path`: part of one of the keys; `skip`: so many such writes go by."""
        self.path = path
        self.skip = skip
        self.after = after

    def hits(self, paths: Sequence[str]) -> bool:
        if not any(self.path in path for path in paths):
            return False
        self.skip -= 1
        return self.skip < 0


class LifeStore(SimStore):
    """The metadata store as one process sees it."""

    def __init__(self, inner: MemoryMetadataStore, weather: Weather, life: Life) -> None:
        super().__init__(inner, weather)
        self._life = life

    async def _written(self, paths: Sequence[str], write: Callable[[], Awaitable[None]]) -> None:
        trap = self._life.trap
        hit = trap is not None and trap.hits(paths)
        if trap is not None and hit and not trap.after:
            await self._life.die()
        await write()
        if trap is not None and hit:
            await self._life.die()

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        found: list[Stat] = []

        async def write() -> None:
            found.append(
                await SimStore.put(
                    self,
                    path,
                    data,
                    expected_version=expected_version,
                    ephemeral=ephemeral,
                    sequential=sequential,
                )
            )

        await self._written([path], write)
        return found[0]

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        found: list[Stat | None] = []

        async def write() -> None:
            found.extend(await SimStore.transact(self, operations))
            await self._read()

        await self._written([each.path for each in operations], write)
        return found

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        life = self._life

        def told(notification: Notification) -> None:
            life.loop.within(life.process, callback, notification)

        return super().watch(prefix, told)


class Life:
    """From a start to a kill."""

    def __init__(
        self,
        number: int,
        world: World,
        loop: SimLoop,
        weather: Weather,
        kept: MemoryMetadataStore,
        ledgers: SimLedgers,
    ) -> None:
        """`kept` and `ledgers` outlive it."""
        self.world, self.loop = world, loop
        self.process = Process(f"broker {number}")
        self.process.ends.append(self._ended)
        self.trap: Trap | None = None
        self.lines: list[LifeLine] = []
        self.ready = False
        self.broker: Broker
        self._store = LifeStore(kept, weather, self)
        self._ledgers = ledgers
        self.starting = loop.start(self.process, self._start())

    async def _start(self) -> None:
        clock = WorldClock(self.world)
        tasks = TaskGroup("logs")
        logs = ManagedLogs(
            store=self._store,
            ledgers=self._ledgers,
            clock=clock,
            config=ManagedLogConfig(rollover_ms_min=0, entries_max_per_ledger=8),
            spawn=tasks.spawn,
        )
        config = BrokerConfig(transactions=True, inactive_interval_s=3_600)
        self.broker = Broker(config=config, store=self._store, logs=logs, clock=clock)
        self.joins()
        await self.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        self.ready = True

    def joins(self) -> None:
        """Before the broker starts: it is alone."""
        kept = RulesInForce.txns_kept(self.broker.store, self.broker.tasks.spawn)
        self.broker.transactions = Transactions(self.broker, RulesInForce.txns, kept)

    def do(self, act: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        """Something that the process does; what it refuses is noted."""

        async def doing() -> None:
            try:
                await act()
            except MagnetarError as error:
                self.world.note("refused", type(error).__name__)
            except Exception as error:  # noqa: BLE001  # no code expected it
                self.loop.errors.append(repr(error))

        return self.loop.start(self.process, doing())

    async def die(self) -> None:
        """Kills the process in the middle of what it does."""
        self.loop.kill(self.process)
        await asyncio.Event().wait()  # for ever: nothing of it runs any more

    def _ended(self) -> None:
        self.ready = False
        random = self.world.random
        for ledger in self._ledgers.ledgers.values():
            writer = ledger.writer
            if writer is not None and writer.process is self.process:
                if not ledger.closed and writer.error is None:
                    # Any part of the bytes that were not synced may have reached the device.
                    ledger.durable = random.randint(ledger.durable, writer.last_pushed)
                ledger.writer = None
        for line in self.lines:
            line.cut()


class LifeLine(Line):
    """A connection to a process that may vanish."""

    def __init__(
        self, life: Life, peer: str, hear: Callable[[object], None], lost: Callable[[], None]
    ) -> None:
        self._lost = lost
        life.lines.append(self)
        home = Home(life.loop)
        home.process, home.broker = life.process, life.broker
        super().__init__(home, peer, hear)

    def close(self, reason: str) -> None:
        if not self.closed:
            self.cut()
            self._within(self._gone)

    abort = close

    def _gone(self) -> None:
        self.session.lost()

    def cut(self) -> None:
        """Its other end is gone."""
        self.closed = True
        self._lost()
