"""The life of transactions on two brokers: moves, kills, and pauses in which others take over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from magnetar.base.names import TopicName
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.discovery import ASSIGN
from sim.several.brokers import SharedLife, Table
from sim.several.lines import SharedHome
from sim.transactions.clients import IN, LINE, OUTS, WORK, Worker, seek_to_the_first
from sim.transactions.life import Life, Trap
from sim.transactions.story import EVENTS, TransactionStory

BROKERS: Final = 2
_BUSY_S: Final = 10.0
_FOLLOWED_S: Final = 10.0
"""END_TXN is answered then, whatever topics do."""
_HEARS_S: Final = 6.0
"""A former owner believes for so long that it is the owner."""
_MOVED: Final = (IN, *OUTS, *(str(ASSIGN.with_partition(number)) for number in range(2)))
_KILLED_AT: Final = (
    "/transactions/headers",
    "/transactions/parts",
    "/transactions/parts",
    "/transactions/outcomes",
    "/transactions/hidden",
    "/managed-ledgers",
    "",
)


class SeveralStory(TransactionStory):
    """One run."""

    _home: SharedHome

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._table = self._home.table = Table()

    def _new_home(self) -> SharedHome:
        return SharedHome(self.world, self._history)

    # -- brokers -----------------------------------------------------------------------------------

    async def _alive(self) -> Life:
        """All brokers serve; another life of each that was killed. One of them, by chance."""
        lives = self._home.lives
        while True:
            for number in range(BROKERS):
                if number >= len(lives) or not lives[number].process.is_up:
                    self._lives += 1
                    name = f"broker {number}.{self._lives}"
                    life = SharedLife(
                        self._table,
                        name,
                        self._lives,
                        self.world,
                        self._loop,
                        self._weather,
                        self._kept,
                        self._ledgers,
                    )
                    lives[number:] = [life, *lives[number + 1 :]]
                elif lives[number].starting.done() and (error := lives[number].starting.exception()):
                    self.world.note("does not start", repr(error))
                    self._loop.kill(lives[number].process)
            if len(lives) == BROKERS and all(life.ready for life in lives):
                return self.world.random.choice(lives)
            await asyncio.sleep(0.05)

    def _calm(self) -> None:
        for life in self._home.lives:
            life.process.steps_left, life.trap = -1, None
            self._loop.go_on(life.process)

    async def _restart(self) -> None:
        for life in self._home.lives:
            self._loop.kill(life.process)
        await self._alive()
        await asyncio.sleep(3)  # the records of the dead are gone

    async def _set_up(self, life: Life) -> None:
        for topic, names in (
            (IN, ("keep", WORK, LINE)),
            (OUTS[0], ("keep",)),
            (OUTS[1], ("keep",)),
            (OUTS[2], ("follower",)),
        ):
            owner = self._home.find(topic)
            assert owner is not None
            await asyncio.wait([owner.do(partial(owner.broker.create_topic, TopicName.parse(topic)))])

            async def subscribed(
                topic: str = topic, names: tuple[str, ...] = names, owner: SharedLife = owner
            ) -> None:
                found = await owner.broker.topic(TopicName.parse(topic), create=False)
                for name in names:
                    await found.subscription(name, initial_earliest=True, start=None, properties=None)

            await asyncio.wait([owner.do(subscribed)])

    # -- what happens ------------------------------------------------------------------------------

    def _draw(self, workers: list[Worker]) -> tuple[float, str, Callable[[], object]]:
        random, home = self.world.random, self._home
        number = random.randrange(BROKERS)
        name = random.choice(_MOVED)
        span_s = random.choice((0.01, 0.3, 2.0))
        late_s = random.choice((0.0, 0.01, 0.3, 2.0))
        steps, path = random.choice((0, 3, 30, 300)), random.choice(_KILLED_AT)
        trap = Trap(path, skip=random.choice((0, 0, 1, 5)), after=random.random() < 0.5)
        worker = random.choice(workers)
        loop = asyncio.get_running_loop()

        def later(work: Any) -> None:
            self._running.append(loop.create_task(work))

        def kill() -> None:
            home.lives[number].process.steps_left = steps

        def kill_at_write() -> None:
            home.lives[number].trap = trap

        def move() -> None:
            if (owner := self._table.owner(name)) is not None and owner.ready:
                home.unloaded[name] = self.world.now_us
                self._loop.within(owner.process, owner.release, name)

        async def stopped(*, expires: bool, span_s: float = span_s, late_s: float = late_s) -> None:
            """Nothing of the broker runs for a while; others may take what it has."""
            life = home.lives[number]
            self._loop.pause(life.process)
            for each in (IN, *OUTS):
                home.unloaded[each] = self.world.now_us
            await asyncio.sleep(span_s)
            if expires:
                self._table.drop(life)
                for client in home.clients:
                    # No answer came: they look again. One stays, and goes on with the former owner.
                    if client is not worker and client.line is not None and random.random() < 0.8:
                        client.line.close("no answer")
                await asyncio.sleep(span_s)
            self._loop.go_on(life.process)
            if expires:
                await asyncio.sleep(late_s)
                self._loop.within(life.process, life.session_lost)

        def maintain() -> None:
            life = home.lives[number]
            if life.ready:
                life.do(life.broker.maintain)

        def compact() -> None:
            owner = self._table.owner(OUTS[0])
            if owner is None or not owner.ready:
                return
            topic = owner.broker.loaded(TopicName.parse(OUTS[0]))

            async def start() -> None:
                if isinstance(topic, Topic):
                    topic.compaction.start()

            owner.do(start)

        async def stalls() -> None:
            self._weather.calm.clear()
            await asyncio.sleep(span_s)
            self._weather.calm.set()

        async def waits() -> None:
            """What ledgers took is not durable for a while."""
            self._weather.syncs.clear()
            await asyncio.sleep(span_s)
            self._weather.syncs.set()

        async def fails() -> None:
            self._history.failures = self._weather.failing = True
            await asyncio.sleep(span_s)
            self._weather.failing = False

        acts: list[tuple[str, Callable[[], object]]] = [
            (f"move of {name}", move),
            (f"move of {name}", move),
            (f"kill of {number} in {steps} steps", kill),
            (f"kill of {number} at a write of {path}", kill_at_write),
            (f"kill of {number} at a write of {path}", kill_at_write),
            (f"pause of {number} for {span_s} s", lambda: later(stopped(expires=False))),
            (f"pause of {number} and the end of its session", lambda: later(stopped(expires=True))),
            (f"pause of {number} and the end of its session", lambda: later(stopped(expires=True))),
            ("maintenance", maintain),
            ("compaction", compact),
            ("storage stalls", lambda: later(stalls())),
            (f"ledgers wait for {span_s} s", lambda: later(waits())),
        ]
        if self.world.seed[-1] in "0369":
            acts += 3 * [(f"storage fails for {span_s} s", lambda: later(fails()))]
        if self.world.seed[-1] == "5":
            # An end is answered before an owner has heard of it; a former owner hears late that it is one.
            long, late = partial(stopped, expires=False), partial(stopped, expires=True)
            acts += 4 * [(f"long pause of {number}", lambda: later(long(span_s=_FOLLOWED_S + 2)))]
            acts += 6 * [(f"pause of {number}, which hears late", lambda: later(late(late_s=_HEARS_S)))]
        if self.world.seed[-1] in "147":
            acts.append(("a seek", lambda: later(seek_to_the_first(worker))))
        words, act = random.choice(acts)
        return random.choice((0.0, 0.05, 0.3, 2 * _BUSY_S / EVENTS)), words, act

    def _check(self) -> None:
        for life in self._home.lives:
            if life.ready:
                life.broker.transactions.check()
                life.broker.registry.check()

    async def _nothing_left(self, life: Life) -> None:
        for each in self._home.lives:
            transactions = each.broker.transactions
            for coordinator in transactions.coordinators.values():
                for txn in coordinator.transactions.values():
                    self._wrong("T18", f"{txn} is still there, unresolved {txn.unresolved}")
            if transactions._resolving.of_topic:
                self._wrong("T18", f"topics still wait: {list(transactions._resolving.of_topic)}")
            for topic in each.broker.topics.values():
                part = topic.transactions
                if part is not None and (part.spans or part.spans.visible.end is not None):
                    self._wrong("T9", f"{topic.name} is held back, though no transaction is open")
        for path in ("headers", "wishes"):
            if left := await self._kept_below(f"/magnetar/transactions/{path}"):
                self._wrong("T18", f"{path} are left: {left[:3]}")
        for name in (IN, *OUTS):
            path = f"/magnetar/transactions/parts/{TopicName.parse(name).log_name}"
            if left := await self._kept.children(path):
                self._wrong("T18", f"parts of {name} are left: {left[:3]}")
