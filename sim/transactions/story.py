"""The life of transactions: workers, readers and kills, on one broker after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.header_log import fold
from magnetar.broker.transactions.kept_log import records_of
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.wire import pulsar_pb2 as pb
from sim import steps
from sim.broker.storage import SimLedgers, Weather
from sim.broker.story import Unexpected
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process, SimLoop
from sim.story import Violation
from sim.transactions.clients import (
    IN,
    LINE,
    OUTS,
    WORK,
    Follower,
    Home,
    Liner,
    PlainClient,
    Reader,
    TxnClient,
    Worker,
    seek_to_the_first,
)
from sim.transactions.history import History, Unit
from sim.transactions.life import Life, Trap
from sim.world import World

_US: Final = 1_000_000
_BUSY_S: Final = 10.0
EVENTS: Final = 12
_TTL_S: Final = 20.0
"""Seconds of the longest transaction."""
_KILLED_AT: Final = (
    "/transactions/log",
    "/transactions/log",
    "/transactions/outcomes",
    "/transactions/hidden",
    "/cursors",
    "/managed-ledgers",
    "",
)
"""Writes of metadata at which the broker is killed, by a part of their keys."""


class TransactionStory:
    """One run."""

    def __init__(self, name: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> None:
        """`skipped`: numbers of planned events that do not happen."""
        self.world = World(name, keep_log=keep_log)
        self.planned = EVENTS
        self._skipped = skipped
        self._loop = SimLoop(self.world)
        self._weather = Weather(self.world)
        self._violations: list[Violation] = []
        self._history = History(lambda: self.world.now_us)
        self._home = self._new_home()
        self._lives = 0
        self._running: list[asyncio.Task[Any]] = []

    def _new_home(self) -> Home:
        return Home(self.world, self._history)

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold."""
        watch = _Watch(self._violations)
        quiet = logging.getLogger("magnetar")
        before, level = quiet.propagate, quiet.level
        quiet.addHandler(watch)
        quiet.propagate = False
        quiet.setLevel(logging.ERROR)
        try:
            story = self._loop.start(Process("clients"), self._live())
            self._loop.run_until(1_000 * _US, story.done)
            if not story.done():
                self._wrong("ends", "the story did not come to its end")
            elif story.exception() is not None:
                self._wrong("holds", repr(story.exception()))
        finally:
            quiet.removeHandler(watch)
            # What killed processes log while the loop is tidied up does not count.
            silent = logging.NullHandler()
            quiet.addHandler(silent)
            self._loop.tidy_up()
            # The deferred checks of killed processes do not count either.
            steps.forget()
            quiet.removeHandler(silent)
            quiet.propagate = before
            quiet.setLevel(level)
        for error in self._loop.errors:
            self._wrong("expected", error)
        return self._violations

    def _wrong(self, rule: str, detail: str) -> None:
        self.world.note("violation", rule, detail)
        self._violations.append(Violation(rule, detail))

    # -- the broker --------------------------------------------------------------------------------

    async def _alive(self) -> Life:
        """A broker that serves; another life where it was killed."""
        while True:
            life = self._home.life
            if life is None or not life.process.is_up:
                self._lives += 1
                life = self._home.life = Life(
                    self._lives, self.world, self._loop, self._weather, self._kept, self._ledgers
                )
            if life.ready:
                return life
            if life.starting.done() and (error := life.starting.exception()) is not None:
                # As an operator who starts it again.
                self.world.note("does not start", repr(error))
                self._loop.kill(life.process)
            await asyncio.sleep(0.05)

    async def _keep_alive(self) -> None:
        while True:
            await self._alive()
            await asyncio.sleep(self.world.random.choice((0.05, 0.3, 1.5)))

    def _calm(self) -> None:
        """No kill is to come."""
        if (life := self._home.life) is not None:
            life.process.steps_left, life.trap = -1, None

    async def _restart(self) -> None:
        """Nothing is left of what a process remembers."""
        self._loop.kill((await self._alive()).process)
        await self._alive()

    # -- the story ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        random = self.world.random
        self._kept = MemoryMetadataStore(WorldClock(self.world))
        self._ledgers = SimLedgers(self._weather)
        life = await self._alive()
        await self._set_up(life)
        home = self._home
        workers = [Worker(home, f"w{number}") for number in range(2)]
        clients: list[TxnClient] = [*workers, Liner(home, "l"), Follower(home, "f", OUTS[2])]
        clients += [PlainClient(home, f"p{number}", topic) for number, topic in enumerate((IN, *OUTS))]
        clients += [Reader(home, f"r{number}", topic) for number, topic in enumerate(OUTS[:2])]
        loop = asyncio.get_running_loop()
        self._running = [loop.create_task(client.run()) for client in clients]
        alive = loop.create_task(self._keep_alive())
        plan = [self._draw(workers) for _ in range(EVENTS)]
        for number, (pause_s, words, act) in enumerate(plan):
            await asyncio.sleep(pause_s)
            if number not in self._skipped:
                self.world.note("event", number, words)
                act()
            self._check()
        await asyncio.sleep(random.choice((0.0, 1.0)))
        self._weather.failing = False
        self._weather.calm.set()
        self._weather.syncs.set()
        self._calm()
        self.world.note("all is well from here on")
        await self._over(workers, clients)
        alive.cancel()

    async def _set_up(self, life: Life) -> None:
        """Topics, and subscriptions that keep all of them but the last."""
        for topic in (IN, *OUTS):
            await asyncio.wait([life.do(partial(life.broker.create_topic, TopicName.parse(topic)))])
        wanted = [(topic, "keep") for topic in (IN, *OUTS[:2])] + [
            (IN, WORK),
            (IN, LINE),
            (OUTS[2], "follower"),
        ]
        for topic, name in wanted:

            async def subscribed(topic: str = topic, name: str = name) -> None:
                found = await life.broker.topic(TopicName.parse(topic), create=False)
                await found.subscription(name, initial_earliest=True, start=None, properties=None)

            await asyncio.wait([life.do(subscribed)])

    def _draw(self, workers: list[Worker]) -> tuple[float, str, Callable[[], object]]:
        random = self.world.random
        name = TopicName.parse(random.choice((IN, *OUTS)))
        span_s = random.choice((0.01, 0.3, 2.0))
        steps, path = random.choice((0, 3, 30, 300)), random.choice(_KILLED_AT)
        trap = Trap(path, skip=random.choice((0, 0, 1, 5)), after=random.random() < 0.5)
        worker = random.choice(workers)
        loop = asyncio.get_running_loop()

        async def spell(begin: Callable[[], None], end: Callable[[], None]) -> None:
            begin()
            await asyncio.sleep(span_s)
            end()

        def failing() -> None:
            self._history.failures = self._weather.failing = True

        def well() -> None:
            self._weather.failing = False

        def kill() -> None:
            if (life := self._home.life) is not None:
                life.process.steps_left = steps

        def kill_at_write() -> None:
            if (life := self._home.life) is not None:
                life.trap = trap

        def unload(*names: TopicName) -> None:
            life = self._home.life
            if life is not None and life.ready:
                for each in names:
                    self._home.unloaded[str(each)] = self.world.now_us
                    life.do(partial(life.broker.unload, each))

        def maintain() -> None:
            life = self._home.life
            if life is not None and life.ready:
                life.do(life.broker.maintain)

        def compact() -> None:
            life = self._home.life
            topic = life.broker.loaded(TopicName.parse(OUTS[0])) if life is not None and life.ready else None

            async def start() -> None:
                if isinstance(topic, Topic):
                    topic.compaction.start()

            if life is not None and topic is not None:
                life.do(start)

        def later(*spells: Callable[[], None]) -> None:
            self._running.append(loop.create_task(spell(*spells)))

        acts: list[tuple[str, Callable[[], object]]] = [
            (f"unload of {name}", lambda: unload(name)),
            (f"unload of {name}", lambda: unload(name)),
            ("unload of all", lambda: unload(*map(TopicName.parse, (IN, *OUTS)))),
            (f"kill in {steps} steps", kill),
            (f"kill at a write of {path}", kill_at_write),
            (f"kill at a write of {path}", kill_at_write),
            ("maintenance", maintain),
            ("maintenance", maintain),
            ("compaction", compact),
            ("storage stalls", lambda: later(self._weather.calm.clear, self._weather.calm.set)),
        ]
        if self.world.seed[-1] in "0369":
            acts += 3 * [(f"storage fails for {span_s} s", lambda: later(failing, well))]
        if self.world.seed[-1] in "147":
            seek = seek_to_the_first
            acts.append(("a seek", lambda: self._running.append(loop.create_task(seek(worker)))))
        words, act = random.choice(acts)
        return random.choice((0.0, 0.05, 0.3, 2 * _BUSY_S / EVENTS)), words, act

    def _check(self) -> None:
        """At any time."""
        life = self._home.life
        if life is not None and life.ready:
            life.broker.transactions.check()
            life.broker.registry.check()

    # -- when everything is over -------------------------------------------------------------------

    async def _over(self, workers: list[Worker], clients: list[TxnClient]) -> None:
        for client in clients:
            if not isinstance(client, Follower):
                client.stopped = True
        await asyncio.sleep(_TTL_S + 6)
        self._check()
        await self._ask_for_ends()
        await asyncio.sleep(5)
        for client in clients:
            client.stopped = True
            if client.line is not None:
                client.line.close("the story ends")
        for task in self._running:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self._wrong("expected", repr(error))
        await self._nothing_left(await self._alive())
        final = {topic: await self._read(topic) for topic in (IN, *OUTS[:2])}
        # All headers are outcomes; nothing depends on what a process remembers.
        await self._restart()
        for topic, seen in final.items():
            if await self._read(topic) != seen:
                self._wrong("T20", f"{topic} reads otherwise after another restart")
            for detail in self._history.check_topic(topic, seen):
                self._wrong("messages", detail)
        await self._check_compacted(final[OUTS[0]])
        self._check_followed([client for client in clients if isinstance(client, Follower)])
        units = await self._units(final[IN])
        for name in (WORK, LINE):
            for detail in self._history.check_acks(name, units, await self._left(name)):
                self._wrong("acknowledgements", detail)
        for detail in self._history.wrong:
            self._wrong("history", detail)
        for client in self._home.clients:
            for violation in client.violations:
                self._wrong("answers", violation)

    async def _ask_for_ends(self) -> None:
        """Asks for each end again, from another client; a transaction that no client ended was aborted by its
        timeout."""
        asking = TxnClient(self._home, "asks")
        for attempt in self._history.attempts:
            if attempt.txn is None:
                continue
            for commit in (True, False):
                for _ in range(100):
                    if not asking.up:
                        await self._alive()
                        asking.begins()
                    late = attempt.commit_us == 1 << 62
                    if await asking.ends(attempt, commit=commit):
                        break
                    await asyncio.sleep(0.2)
                else:
                    self._wrong("T5", f"no answer says how {attempt.name} ended")
                if commit and late and attempt.committed:
                    self._wrong("T8", f"{attempt.name} was still open, and was committed now")

    async def _nothing_left(self, life: Life) -> None:
        """What is over leaves nothing but outcomes (T18)."""
        transactions = life.broker.transactions
        for coordinator in transactions.coordinators.values():
            for txn in coordinator.transactions.values():
                self._wrong("T18", f"{txn} is still there, unresolved {txn.unresolved}")
        left = fold([lines async for _, lines in records_of(self._kept)])
        if left or await self._kept_below("/magnetar/transactions/headers"):
            self._wrong("T18", f"headers are left: {left}")
        if transactions._resolving.of_topic:
            self._wrong("T18", f"topics still wait: {list(transactions._resolving.of_topic)}")
        for topic in life.broker.topics.values():
            part = topic.transactions
            if part is not None and (part.spans or part.spans.visible.end is not None):
                self._wrong("T9", f"{topic.name} is held back, though no transaction is open")

    async def _kept_below(self, path: str) -> list[str]:
        found = []
        for number in await self._kept.children(path):
            found += [f"{number}/{each}" for each in await self._kept.children(f"{path}/{number}")]
        return found

    async def _read(self, topic: str) -> list[tuple[Position, str]]:
        reader = Reader(self._home, f"final {topic}", topic)
        self._history.readings = [
            each for each in self._history.readings if not each.name.startswith("final")
        ]
        for _ in range(50):
            await self._alive()
            if await reader.come():
                await asyncio.sleep(1)
                reader.stopped = True
                assert reader.line is not None
                reader.line.close("has seen all")
                return reader.reading.seen
            await asyncio.sleep(0.5)
        self._wrong("serves", f"{topic} cannot be read")
        return []

    async def _check_compacted(self, final: list[tuple[Position, str]]) -> None:
        """The view has the last committed value of every key (T14)."""
        reader = Reader(self._home, "view", OUTS[0], compacted=True)
        for _ in range(50):
            if await reader.come():
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(1)
        keys = {sent.body: sent.key for sent in self._history.plain}
        keys |= {sent.body: sent.key for attempt in self._history.attempts for sent in attempt.sends}

        def newest(entries: list[tuple[Position, str]]) -> dict[str, str]:
            return {keys[body]: body for _, body in entries}

        seen = reader.reading.seen
        if not set(seen) <= set(final):
            self._wrong("T14", "the compacted view has what no reader gets")
        elif newest(seen) != newest(final):
            self._wrong("T14", f"the compacted view says {newest(seen)}, not {newest(final)}")

    def _check_followed(self, followers: list[Follower]) -> None:
        """What a topic that keeps nothing has given to its only subscription (T15)."""
        got = {body for follower in followers for body in follower.got}
        for sent, committed in self._history.sent(OUTS[2]):
            if sent.body in got and (not committed or sent.fate == "refused"):
                self._wrong("T1", f"{sent.body} was delivered, and is not committed")
            if sent.body not in got and committed and sent.fate == "stored":
                self._wrong("T15", f"{sent.body} is committed, and was never delivered")

    async def _units(self, final: list[tuple[Position, str]]) -> list[Unit]:
        sizes: dict[Position, int] = {}
        for client in self._home.clients:
            sizes |= getattr(client, "sizes", {})
        return [(position, index) for position, _ in final for index in range(sizes.get(position, 1))]

    async def _left(self, subscription: str) -> list[Unit]:
        """What a subscription still has to give."""
        last = Drain(self._home, f"drain of {subscription}", subscription)
        for _ in range(50):
            await self._alive()
            if await last.come():
                await asyncio.sleep(3)
                return last.units
            await asyncio.sleep(0.5)
        self._wrong("serves", f"{subscription} cannot be consumed")
        return []


class _Watch(Unexpected):
    """Periodic work tells of a store that fails, and does it again later."""

    def emit(self, record: logging.LogRecord) -> None:
        if not (record.exc_info and isinstance(record.exc_info[1], MetadataError)):
            super().emit(record)


class Drain(Worker):
    """Takes what is left and acknowledges nothing."""

    def __init__(self, home: Home, name: str, subscription: str) -> None:
        super().__init__(home, name)
        self.subscription = subscription
        self.units: list[Unit] = []

    async def come(self) -> bool:
        self.begins()
        self.units = []
        kind = pb.CommandSubscribe.Shared if self.subscription == WORK else pb.CommandSubscribe.Failover
        if not await self.subscribes(IN, self.subscription, kind):
            return False
        self.flow()
        return True

    def heard(self, event: object) -> None:
        self.available = set()
        super().heard(event)
        self.units += sorted(self.available)
