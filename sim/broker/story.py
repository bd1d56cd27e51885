"""The life of a broker: clients, loads, unloads, deletions, failing storage and crashes, all on few names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.service import Broker, BrokerConfig
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.runtime.tasks import TaskGroup
from sim.broker.client import Client, ConsumingClient, Home, ProducingClient
from sim.broker.storage import SimLedgers, SimStore, Weather
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process, SimLoop
from sim.rules import RulesInForce
from sim.story import Violation
from sim.world import World

_US: Final = 1_000_000
_BUSY_S: Final = 8.0
"""In so long everything happens that is planned."""
_HEALED_S: Final = 150.0
"""Virtual seconds after the faults within which every client must be served again: more than twice a client's
longest wait."""
EVENTS: Final = 30
KEPT: Final = TopicName.parse("kept")
"""A topic that no operator deletes: each message with a receipt must be received."""
NAMES: Final = (KEPT, TopicName.parse("t"), TopicName.parse("p").with_partition(0))
NAMESPACE: Final = NamespaceName.parse("public/default")


class BrokerStory:
    """One run."""

    def __init__(self, name: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> None:
        """`skipped`: numbers of planned events that do not happen."""
        self.world = World(name, keep_log=keep_log)
        self.planned = EVENTS
        self._skipped = skipped
        self._loop = SimLoop(self.world)
        self._weather = Weather(self.world)
        self._home = Home(self._loop)
        self._lives = 0
        """Processes of the broker so far."""
        self._metadata = MemoryMetadataStore(WorldClock(self.world))
        self._ledgers = SimLedgers(self._weather)
        self._violations: list[Violation] = []
        self._clients: list[Client] = []
        self._background: list[asyncio.Task[Any]] = []

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold."""
        watch = Unexpected(self._violations)
        quiet = logging.getLogger("magnetar")
        before, level = quiet.propagate, quiet.level
        quiet.addHandler(watch)
        quiet.propagate = False
        quiet.setLevel(logging.ERROR)
        try:
            story = self._loop.start(Process("story"), self._live())
            self._loop.run_until(int((_BUSY_S + _HEALED_S + 60) * _US), story.done)
            if not story.done():
                self._wrong("ends", "the story did not come to its end")
            elif story.exception() is not None:
                self._wrong("holds", repr(story.exception()))
        finally:
            quiet.removeHandler(watch)
            # What killed processes log while the loop is tidied up does not count.
            quiet.setLevel(logging.CRITICAL)
            self._loop.tidy_up()
            quiet.propagate = before
            quiet.setLevel(level)
        for error in self._loop.errors:
            self._wrong("expected", error)
        return self._violations

    def _wrong(self, rule: str, detail: str) -> None:
        self.world.note("violation", rule, detail)
        self._violations.append(Violation(rule, detail))

    async def _live(self) -> None:
        await self._begin_broker()
        await self._in_broker(lambda broker: broker.partitioned.create(NAMES[2].base, 2))
        self._begin_clients()
        # What is skipped leaves the others as they are: chance is drawn for all of them.
        plan = [self._draw() for _ in range(EVENTS)]
        for number, (pause_s, words, act) in enumerate(plan):
            await asyncio.sleep(pause_s)
            if number not in self._skipped:
                self.world.note("event", number, words)
                self._background.append(asyncio.get_running_loop().create_task(self._doing(act)))
            self._check()
        self._weather.failing = False
        self._weather.calm.set()
        self.world.note("storage is well from here on")
        await self._healed()

    # -- the broker's process ----------------------------------------------------------------------

    async def _begin_broker(self) -> None:
        """A broker on what the one before left, as soon as storage lets it start."""
        home = self._home
        while home.broker is None:
            self._lives += 1
            home.process = Process(f"broker {self._lives}")
            try:
                home.broker = await self._loop.start(home.process, self._started())
            except MagnetarError as error:
                self.world.note("no start", type(error).__name__)
                self._loop.kill(home.process)
                await asyncio.sleep(0.1)

    async def _started(self) -> Broker:
        clock = WorldClock(self.world)
        store = SimStore(self._metadata, self._weather)
        tasks = TaskGroup("logs")
        logs = RulesInForce.logs(
            store=store,
            ledgers=self._ledgers,
            clock=clock,
            config=ManagedLogConfig(rollover_ms_min=0, entries_max_per_ledger=20),
            spawn=tasks.spawn,
        )

        class Ruled(Broker):
            registry_rules = RulesInForce.registry

        broker = Ruled(config=BrokerConfig(), store=store, logs=logs, clock=clock)
        await broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        return broker

    async def _crash(self) -> None:
        """The process vanishes between two steps, and another one comes."""
        home = self._home
        if home.broker is None:
            return
        home.broker = None
        self._loop.kill(home.process)
        self._ledgers.forget_writers()
        for client in self._clients:
            client.cut_off()
        await self._begin_broker()

    async def _in_broker(self, act: Callable[[Broker], Awaitable[object]]) -> None:
        """Does something as the broker's process, if there is one; it ends nowhere when that vanishes."""
        broker = self._home.broker

        async def done() -> None:
            assert broker is not None
            await act(broker)

        if broker is not None:
            await self._loop.start(self._home.process, done())

    def _begin_clients(self) -> None:
        random = self.world.random

        def pause() -> float:
            return random.choice((0.001, 0.01, 0.05, 0.2, 0.5))

        for name in NAMES:
            producing = ProducingClient(self._home, f"producer of {name}", str(name), pause)
            consuming = ConsumingClient(
                self._home, f"consumer of {name}", str(name), pause, unsubscribes=name != KEPT
            )
            self._clients += [producing, consuming]
        loop = asyncio.get_running_loop()
        self._background += [loop.create_task(client.run()) for client in self._clients]

    # -- what happens ------------------------------------------------------------------------------

    def _draw(self) -> tuple[float, str, Callable[[], Awaitable[object]]]:
        random = self.world.random
        name = random.choice(NAMES)
        span_s = random.choice((0.0, 0.01, 0.5, 3.0))

        async def polled(broker: Broker) -> None:
            for _ in range(5):
                await broker.topic(name, create=False)
                await asyncio.sleep(0.002)

        async def cancelled(broker: Broker) -> None:
            task = asyncio.get_running_loop().create_task(broker.topic(name))
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait((task,))

        async def failing() -> None:
            self._weather.failing = True
            await asyncio.sleep(span_s)
            self._weather.failing = False

        async def stalled() -> None:
            self._weather.calm.clear()
            await asyncio.sleep(span_s * 10)
            self._weather.calm.set()

        async def deleted(broker: Broker) -> None:
            if name != KEPT:
                await broker.delete_topic(name, force=True)

        async def ended(broker: Broker) -> None:
            await broker.partitioned.delete(NAMES[2].base, force=True)
            await broker.partitioned.create(NAMES[2].base, 2)

        async def unload_all(broker: Broker) -> None:
            for each in await broker.topics_of(NAMESPACE):
                await broker.unload(each)

        within: list[tuple[str, Callable[[Broker], Awaitable[object]]]] = [
            ("unload", lambda broker: broker.unload(name)),
            ("unload", lambda broker: broker.unload(name)),
            ("polled", polled),
            ("polled", polled),
            ("cancelled load", cancelled),
            ("force deletion", deleted),
            ("force deletion", deleted),
            ("deletion of the partitioned topic", ended),
            ("unload of the namespace", unload_all),
            ("maintenance", lambda broker: broker.maintain()),
            ("creation", lambda broker: broker.create_topic(NAMES[1])),
        ]
        acts: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            *((words, partial(self._in_broker, act)) for words, act in within),
            ("storage fails", failing),
            ("storage stalls", stalled),
            ("crash", self._crash),
        ]
        words, act = random.choice(acts)
        pause_s = random.choice((0.0, 0.0, 0.001, 0.01, 0.1, 2 * _BUSY_S / EVENTS))
        return pause_s, f"{words}: {name}", act

    async def _doing(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except MagnetarError as error:
            self.world.note("refused", type(error).__name__)

    # -- what must hold ----------------------------------------------------------------------------

    def _check(self) -> None:
        """At any time: one object per name, and every client is attached to that object."""
        broker = self._home.broker
        if broker is None:
            return
        broker.registry.check()
        for session in broker.sessions:
            for topic, producer in session.producers.values():
                if broker.loaded(topic.name) is not topic and not topic.closed:
                    self._wrong("one object", f"{producer.name} publishes to a {topic.name} of its own")
            for consumer in session.consumers.values():
                subscription = consumer.subscription
                found = broker.loaded(subscription.topic)
                there = found is not None and found.subscriptions.get(subscription.name) is subscription
                if not there and consumer in subscription.consumers:
                    self._wrong("one object", f"{consumer.name} waits at what is gone")

    async def _healed(self) -> None:
        producers = [client for client in self._clients if isinstance(client, ProducingClient)]
        consumers = [client for client in self._clients if isinstance(client, ConsumingClient)]
        for consumer in consumers:
            consumer.unsubscribes = False
        await asyncio.sleep(1)
        stored = [client.stored for client in producers]
        received = [len(client.received) for client in consumers]

        def served() -> Iterable[bool]:
            yield from (now.stored > then for now, then in zip(producers, stored, strict=True))
            yield from (len(now.received) > then for now, then in zip(consumers, received, strict=True))

        waited = 0
        while not all(served()) and waited < _HEALED_S:
            waited += 1
            await asyncio.sleep(1)
            self._check()
        for client, well in zip([*producers, *consumers], served(), strict=True):
            if not well:
                self._wrong("serves", f"{client.name} gets nothing, though storage is well")
        for client in self._clients:
            client.stopped = True
            for violation in client.violations:
                self._wrong("answers", violation)
        await asyncio.sleep(2)
        for task in self._background:
            if task.cancelled():
                self._wrong("expected", "a caller that gave up ended the work of others")
            elif task.done() and (error := task.exception()) is not None:
                self._wrong("expected", repr(error))
        missing = set(range(producers[0].stored + 1)) - consumers[0].received
        if missing:
            self._wrong("keeps", f"{len(missing)} messages of {KEPT} have receipts and were not received")


class Unexpected(logging.Handler):
    """A record with a traceback is a bug that the product survived."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self._violations.append(Violation("expected", f"{record.getMessage()}: {record.exc_info[1]!r}"))
