"""A cluster of brokers under faults: clients publish, brokers die, pause and lose sight of the store.

At any time: a broker that lost its session serves no topic; a record is deleted after the topics are
closed; a fenced broker stores no entry. After all faults have ended: every client gets acknowledgements
again; each topic is loaded at one broker at most, the one that its record names; owners do not overlap;
acknowledged messages are there, and first copies are in the order of each producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random as global_random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.records import NAMESPACES, BrokerUrls
from magnetar.broker.ownership.states import BundleState
from magnetar.broker.policies.bundles import equal_parts, ranges
from magnetar.metadata import keys
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process, SimLoop
from sim.cluster.store import SESSION_US, STORE, SimStore, StoreNode
from sim.cluster.wires import WireFaults, Wires
from sim.owners.bookies import BOOKIES, SimBookies
from sim.owners.broker import NAMESPACE, Call, SimBroker
from sim.story import Violation
from sim.world import World

_MS: Final = 1_000
_S: Final = 1_000_000
FAULTS_BEGIN_US: Final = 300 * _MS
FAULTS_US: Final = 3 * _S
PATIENCE_US: Final = 60 * _S
_BROKERS: Final = 3
_TOPICS: Final = [TopicName.parse(f"topic-{number}") for number in range(5)]
_ANSWER_S: Final = 4.0
"""After so long without an answer a client asks anew."""


class _UnreachableError(Exception):
    """The broker does not answer, or says that nothing listens."""


async def _publish(broker: SimBroker, *, topic: TopicName, number: int) -> None:
    await broker.publish(topic, number)


async def _look_up(broker: SimBroker, *, topic: TopicName, authoritative: bool) -> Any:
    return await broker.look_up(topic, authoritative=authoritative)


class OwnersStory:
    """One run of one seed."""

    topics: ClassVar[Sequence[TopicName]] = _TOPICS
    faults_us: ClassVar[int] = FAULTS_US
    parts: ClassVar[Sequence[int]] = (1, 2, 4)
    """How many bundles the namespace may have."""
    pauses_s: ClassVar[Sequence[float]] = (0.005, 0.02, 0.1)
    """Between an acknowledgement and the next message of a producer."""

    def __init__(self, seed: str, *, keep_log: bool = False, skipped: frozenset[int] = frozenset()) -> None:
        """`skipped`: numbers of planned events that do not happen."""
        world = self.world = World(seed, keep_log=keep_log)
        self.planned = 0
        """How many events were planned."""
        self._skipped = skipped
        self._violations: list[Violation] = []
        self._loop = SimLoop(world)
        self._wires = Wires(world, self._loop, WireFaults())
        self._node = StoreNode(self._wires, WorldClock(world), self._written)
        self._bookies = SimBookies(self._loop)
        self._liars = 0
        """How many brokers were taken for dead and were not."""
        self._lies = world.random.random() < 0.3
        self._brokers = self._new_brokers()
        self._client = Process("clients")
        self._acknowledged: dict[str, list[int]] = {str(topic): [] for topic in self.topics}
        self._sent = dict.fromkeys(self._acknowledged, 0)
        self._after_healing = dict.fromkeys(self._acknowledged, 0)
        self._is_healed = False

    def _new_brokers(self) -> Sequence[SimBroker]:
        return [
            SimBroker(self._node, self._bookies, f"broker{at}", self._refuses, self._all, self._violated)
            for at in range(_BROKERS)
        ]

    def _all(self) -> Sequence[SimBroker]:
        return self._brokers

    def _violated(self, rule: str, detail: str) -> None:
        self.world.note("VIOLATION", rule, detail)
        self._violations.append(Violation(rule, detail))

    def _refuses(self, broker: SimBroker) -> bool:
        """Whether nothing listens at the broker's port. A firewall may say so wrongly."""
        if broker.process.is_up and self._lies and not self._is_healed and self.world.random.random() < 0.4:
            self._liars += 1
            return True
        return not broker.process.is_up

    def run(self) -> list[Violation]:
        """Lives it through; what did not hold."""
        state = global_random.getstate()
        global_random.seed(self.world.random.getrandbits(64))
        logger = logging.getLogger("magnetar")
        before = logger.propagate, logger.level
        # What it says of faults is expected; what no code expected comes through the loop.
        logger.propagate, logger.level = False, logging.CRITICAL
        try:
            self._live()
        finally:
            self._loop.tidy_up()
            logger.propagate, logger.level = before
            global_random.setstate(state)
        return self._violations

    def _live(self) -> None:
        self._initialize()
        random = self.world.random
        self._wires.faults = WireFaults(
            slow=random.choice((0.0, 0.1, 0.3)), breaks=random.choice((0.0, 0.01, 0.05))
        )
        self._begin()
        for topic in self.topics:
            self._loop.start(self._client, self._publish_on(topic))
        self._plan()
        self._loop.run_until(FAULTS_BEGIN_US + self.faults_us)
        self.world.at(0, self._heal)
        self._loop.run_until(self.world.now_us + 1)
        until_us = self.world.now_us + PATIENCE_US
        while not self._is_well() and self.world.now_us < until_us and not self._violations:
            self._loop.run_until(self.world.now_us + 200 * _MS)
        if not self._is_well():
            quiet = [topic for topic, count in self._after_healing.items() if count < 3]
            self._violated("liveness", f"no acknowledgements on {quiet}")
        self._settle()
        self._check_end()
        for error in self._loop.errors:
            self._violated("unexpected", error)

    def _begin(self) -> None:
        for broker in self._brokers:
            broker.start()

    def _settle(self) -> None:
        """What is under way ends before the end is looked at."""
        self._loop.run_until(self.world.now_us + 2 * _S)

    def _initialize(self) -> None:
        process = Process("init")
        store = SimStore(self._node, process)
        document = json.dumps({"bundles": equal_parts(self.world.random.choice(self.parts))}).encode()
        done = self._loop.start(process, store.put(keys.namespace_policies(NAMESPACE), document))
        self._loop.run_until(FAULTS_BEGIN_US, done.done)

    # -- clients -----------------------------------------------------------------------------------

    async def _publish_on(self, topic: TopicName) -> None:
        """One producer: numbers in order, the next one after the acknowledgement of the last."""
        random, name = self.world.random, str(topic)
        while True:
            number = self._sent[name] = self._sent[name] + 1
            broker: SimBroker | None = None
            while True:
                try:
                    if broker is None:
                        broker = await self._look_up(topic)
                    await self._ask(broker, partial(_publish, topic=topic, number=number))
                    break
                except (_UnreachableError, MagnetarError, TimeoutError):
                    broker = None
                    await asyncio.sleep(0.02 + 0.1 * random.random())
            self._acknowledged[name].append(number)
            self.world.note(topic.local, number, broker.name)
            self._after_healing[name] += self._is_healed
            await asyncio.sleep(random.choice(self.pauses_s))

    async def _look_up(self, topic: TopicName) -> SimBroker:
        asked, authoritative = self.world.random.choice(self._brokers), False
        for _ in range(10):
            place = await self._ask(asked, partial(_look_up, topic=topic, authoritative=authoritative))
            if place.urls is None:
                return asked
            asked = next(each for each in self._brokers if each.id == place.urls.broker_id)
            if not place.redirect:
                return asked
            authoritative = True
        raise _UnreachableError

    async def _ask(self, broker: SimBroker, call: Call) -> Any:
        """Calls a broker, over a connection that breaks with its process."""
        await asyncio.sleep(self._wires.delay_us() / _S)
        if not (broker.process.is_up and broker.serves):
            raise _UnreachableError
        answer: asyncio.Future[Any] = self._loop.create_future()

        def told(result: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        async def work() -> None:
            result, error = None, None
            try:
                result = await call(broker)
            except (MagnetarError, TimeoutError) as refusal:
                error = refusal
            self.world.at(self._wires.delay_us(), self._loop.within, self._client, told, result, error)

        broker.process.ends.append(lambda: self._loop.within(self._client, told, None, _UnreachableError()))
        self._loop.within(broker.process, lambda: self._loop.start(broker.process, work()))
        async with asyncio.timeout(_ANSWER_S):
            return await answer

    # -- what happens ------------------------------------------------------------------------------

    def _at(self, time_us: int, action: Callable[..., None], *arguments: object) -> None:
        if self.planned not in self._skipped:
            self.world.at(time_us - self.world.now_us, action, *arguments)
        self.planned += 1

    def _plan(self) -> None:
        random = self.world.random
        for _ in range(random.randint(1, 6)):
            begin_us = FAULTS_BEGIN_US + random.randrange(self.faults_us)
            end_us = begin_us + random.choice((100 * _MS, SESSION_US, 2 * SESSION_US, 2 * _S))
            broker = random.choice(self._brokers)
            match random.randrange(7):
                case 0:
                    self._at(begin_us, broker.crash)
                    self._at(end_us, broker.start)
                case 1 | 2:
                    self._at(begin_us, self._pause, broker)
                    self._at(end_us, self._go_on, broker)
                case 3:
                    self._at(begin_us, self._cut, broker.name, STORE)
                    self._at(end_us, self._mend, broker.name, STORE)
                case 4:
                    self._at(begin_us, self._cut, broker.name, BOOKIES)
                    self._at(end_us, self._mend, broker.name, BOOKIES)
                case 5:
                    self._at(
                        begin_us, self._move, broker, random.choice(["", *(b.id for b in self._brokers)])
                    )
                case _:
                    self._at(begin_us, self._split, broker)

    def _cut(self, left: str, right: str) -> None:
        self._wires.cut(left, right)
        self._wires.cut(right, left)

    def _mend(self, left: str, right: str) -> None:
        self._wires.mend(left, right)
        self._wires.mend(right, left)

    def _pause(self, broker: SimBroker) -> None:
        """As SIGSTOP does: nothing of it runs, its connections stay open."""
        if broker.process.is_up and broker.serves:
            self.world.note(broker.name, "is paused")
            self._loop.pause(broker.process)
            self.world.at(SESSION_US, self._end_if_paused, broker.process, broker.store)

    def _end_if_paused(self, process: Process, store: SimStore) -> None:
        if process.held is not None:
            store.expired()

    def _go_on(self, broker: SimBroker) -> None:
        if broker.process.held is not None:
            self.world.note(broker.name, "goes on")
            self._loop.go_on(broker.process)

    def _move(self, asked: SimBroker, to: str) -> None:
        if not (asked.process.is_up and asked.serves):
            return

        async def work() -> None:
            with contextlib.suppress(MagnetarError):  # the caller would ask again
                topic = self.world.random.choice(self.topics)
                await asked.owners.move(await asked.owners.bundle_of(topic), to)

        self._loop.within(asked.process, lambda: self._loop.start(asked.process, work()))

    def _split(self, asked: SimBroker) -> None:
        if not (asked.process.is_up and asked.serves):
            return

        async def work() -> None:
            with contextlib.suppress(MagnetarError):  # as above
                bundle = await asked.owners.bundle_of(self.world.random.choice(self.topics))
                middle = (bundle.lower + bundle.upper) // 2

                def change(document: dict[str, Any]) -> None:
                    bounds = {int(bound, 16) for bound in document["bundles"]["boundaries"]} | {middle}
                    document["bundles"] = {"boundaries": [f"0x{bound:08x}" for bound in sorted(bounds)]}

                await asked.policies.update_namespace(NAMESPACE, change)
                await asked.owners.move(bundle)

        self._loop.within(asked.process, lambda: self._loop.start(asked.process, work()))

    def _heal(self) -> None:
        self.world.note("everything heals")
        self._is_healed = True
        self._wires.heal()
        for broker in self._brokers:
            self._go_on(broker)
            broker.start()

    # -- what must hold ----------------------------------------------------------------------------

    def _written(self, path: str, data: bytes | None) -> None:
        """From the store: a value was written, or deleted."""
        if data is not None or not path.startswith(f"{NAMESPACES}/{NAMESPACE}/") or self._liars:
            return
        bundle = Bundle.parse(path.removeprefix(f"{NAMESPACES}/"))
        for broker in self._brokers:
            # Its session lives, and it deletes the record itself: else the bundle would be owned or lost.
            if (
                broker.process.is_up
                and broker.serves
                and broker.process.held is None
                and broker.owners.ownership.state(bundle) is BundleState.RELEASING
                and self._node.is_alive(broker.store.session)
                and any(bundle.has(topic.name) for topic in broker.topics.values())
            ):
                self._violated("record first", f"{broker.name} gives {bundle} up with topics that are loaded")

    def _is_well(self) -> bool:
        return all(count >= 3 for count in self._after_healing.values())

    def _check_end(self) -> None:
        for name, acknowledged in self._acknowledged.items():
            # One that no broker ever opened is a matter of liveness.
            entries = self._bookies.topics[name].entries if name in self._bookies.topics else []
            firsts = list(dict.fromkeys(payload for _, payload in entries))
            if lost := set(acknowledged) - set(firsts):
                self._violated("lost", f"{name}: {sorted(lost)[:5]}")
            if firsts != sorted(firsts):
                self._violated("order", f"{name}: {firsts[:40]}")
            openings = [opening for opening, _ in entries]
            if openings != sorted(openings):
                self._violated("two owners", f"{name} was written by a former owner behind a later one")
            here = [
                broker for broker in self._brokers if name in broker.topics and not broker.topics[name].closed
            ]
            if len(here) > 1:
                self._violated("zombie", f"{name} is loaded by {[broker.name for broker in here]}")
            for broker in here:
                self._check_owner(broker, TopicName.parse(name))
        self._check_records()

    def _owners(self) -> Iterator[tuple[Bundle, str]]:
        parent = f"{NAMESPACES}/{NAMESPACE}"
        for name in self._node.nodes.children(parent):
            node = self._node.nodes.get(parent, name)
            if node is not None:
                yield Bundle.parse(f"{NAMESPACE}/{name}"), BrokerUrls.decode(node.data).broker_id

    def _check_owner(self, broker: SimBroker, topic: TopicName) -> None:
        named = [owner for bundle, owner in self._owners() if bundle.has(topic)]
        if named != [broker.id]:
            self._violated("zombie", f"{topic} is loaded by {broker.name}, and its records name {named}")

    def _check_records(self) -> None:
        parent, name = keys.namespace_policies(NAMESPACE).rsplit("/", 1)
        document = self._node.nodes.get(parent, name)
        assert document is not None
        known = set(ranges(json.loads(document.data)))
        for bundle, owner in self._owners():
            if (bundle.lower, bundle.upper) not in known:
                self._violated("overlap", f"{owner} has {bundle}, which was split")
