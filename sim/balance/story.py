"""A cluster that keeps its load even, under faults that are aimed at its leader.

As among owners (`sim/owners`), with brokers that stay away from their reports, and with load that comes, goes
and peaks. Moves are disturbed just when they begin: by a pause or the end of the leader, of the owner or of
the target, by an operator who moves or splits the same bundle.

At any time: only the leader moves bundles, by decisions that are young and by reports that are; a bundle
leaves a broker that had too much to do in each of several reports, and where nothing disturbed the reports
its new owner has no more to do than the former one; it rests then; a part of a split bundle goes where there
is time for it; a namespace has no more bundles than it may. After all faults: what must hold among owners; a
broker leads; load is even where moves can make it so, and nothing is moved any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from magnetar.base.names import TopicName
from magnetar.broker.balance.settings import DEFAULTS, BalanceSettings, SheddingStrategy, SplitAlgorithm
from magnetar.broker.balance.shedding import Shed
from magnetar.broker.ownership.records import drain_path
from magnetar.metadata import keys
from sim.balance.brokers import BalancedBroker
from sim.balance.demand import Demand
from sim.balance.watching import MoveWatch
from sim.cluster.loop import Process
from sim.cluster.store import STORE, SimStore
from sim.owners.bookies import BOOKIES
from sim.owners.broker import NAMESPACE
from sim.owners.story import FAULTS_BEGIN_US, OwnersStory

_MS: Final = 1_000
_S: Final = 1_000_000
_BROKERS: Final = 4
_WORK_US: Final = 250 * _MS
"""Between two shares of work."""
_PEAK_US: Final = 3 * _S
"""A peak is in one report, or in parts of two."""
_SETTLES_US: Final = 80 * _S
"""After so long everything is even: brokers that came have had their share, and splits have ended."""
_CALM_US: Final = 12 * _S

_POINTS: Final = (30.0, 70.0, 95.0)
"""What all topics ask for together: never more than a broker alone can serve, whose reports tell the truth
then."""

Aim = Callable[[BalancedBroker, Shed], None]


class BalanceStory(OwnersStory):
    """One run of one seed."""

    topics: ClassVar[Sequence[TopicName]] = [TopicName.parse(f"topic-{number}") for number in range(12)]
    faults_us: ClassVar[int] = 60 * _S
    parts: ClassVar[Sequence[int]] = (1, 4, 8, 16, 16)
    pauses_s: ClassVar[Sequence[float]] = (2.0, 4.0, 6.0)

    _members: list[BalancedBroker]

    def _new_brokers(self) -> Sequence[BalancedBroker]:
        random = self.world.random
        self._settings = BalanceSettings(
            strategy=SheddingStrategy.UNIFORM if random.random() < 0.2 else SheddingStrategy.THRESHOLD,
            rate_max=random.choice((30_000, 30_000, 1_500)),
            bundles_max=random.choice((128, 18)),
            algorithm=random.choice((SplitAlgorithm.RANGE, SplitAlgorithm.FLOW)),
        )
        self._demand = Demand(self.topics)
        self._demand.spread(random, random.choice(_POINTS))
        self._watch = MoveWatch(self._node, self._demand, self._settings, self._owners, self._violated)
        self._watch.split_pause_s = random.choice((0.0, 0.0, 6.0))
        if self._watch.split_pause_s and self._settings.rate_max < DEFAULTS.rate_max:
            # Several brokers split while the last places are taken.
            self._settings = replace(self._settings, bundles_max=9)
        self._members = [
            BalancedBroker(self._node, self._bookies, f"broker{at}", self._refuses, self._all, self._violated)
            for at in range(_BROKERS)
        ]
        for broker in self._members:
            broker.set_up(self._settings, self._demand, self._watch)
        self._by_operator = False
        """Whether an operator splits bundles: operators have no limit."""
        self._count = 0
        """Bundles of the namespace."""
        self._has_drained = False
        """Whether an operator drains one: the others are to have room."""
        return self._members

    def _initialize(self) -> None:
        super()._initialize()
        if self.world.random.random() < 0.2:
            store = SimStore(self._node, Process("copy"))
            copied = json.dumps({"brokerId": "elsewhere:8080", "serviceUrl": "http://elsewhere:8080"})
            done = self._loop.start(Process("copy"), store.put(keys.LEADER, copied.encode()))
            self._loop.run_until(FAULTS_BEGIN_US, done.done)

    def _begin(self) -> None:
        late = self.world.random.random() < 0.5
        for broker in self._members[late:]:
            broker.start()
        if late:
            self.world.at(self.world.random.randrange(20 * _S, 60 * _S), self._members[0].start)
        self.world.at(_WORK_US, self._work)

    def _work(self) -> None:
        for broker in self._members:
            broker.work(_WORK_US / _S)
        self.world.at(_WORK_US, self._work)

    # -- what happens ------------------------------------------------------------------------------

    def _plan(self) -> None:
        random = self.world.random
        aims: list[Aim] = [
            self._leader_stops_for_short,
            self._leader_stops_for_long,
            self._leader_dies,
            self._owner_hangs,
            self._owner_dies,
            self._target_dies,
            self._operator_is_faster,
            self._operator_splits,
        ]
        for _ in range(random.randint(1, 4)):
            self._at(FAULTS_BEGIN_US + random.randrange(self.faults_us), self._load_changes)
        for _ in range(random.randint(2, 9)):
            begin_us = FAULTS_BEGIN_US + random.randrange(self.faults_us)
            broker = random.choice(self._members)
            match random.randrange(10):
                case 0:
                    self._at(begin_us, broker.crash)
                    self._at(begin_us + random.choice((_S, 8 * _S)), broker.start)
                case 1:
                    self._at(begin_us, self._pause, broker)
                    self._at(begin_us + random.choice((200 * _MS, 3 * _S)), self._go_on, broker)
                case 2:
                    where = random.choice((STORE, BOOKIES))
                    self._at(begin_us, self._cut, broker.name, where)
                    self._at(begin_us + random.choice((300 * _MS, 4 * _S)), self._mend, broker.name, where)
                case 3 | 4:
                    self._at(begin_us, self._falls_silent, broker)
                    self._at(begin_us + random.choice((12 * _S, 45 * _S)), self._speaks, broker)
                case 5:
                    self._at(begin_us, self._peaks, broker, random.choice((60.0, 300.0)))
                    self._at(begin_us + _PEAK_US, self._peaks, broker, 0.0)
                case 6:
                    self._at(begin_us, self._drain, broker)
                case 7:
                    self._at(begin_us, self._leads_anew, broker, random.choice(self._members))
                case _:
                    self._at(begin_us, self._watch.aims.append, random.choice(aims))

    def _falls_silent(self, broker: BalancedBroker) -> None:
        if broker.process.is_up and broker.silent is None:
            self.world.note(broker.name, "does not report any more")
            broker.silent = asyncio.Event()

    def _speaks(self, broker: BalancedBroker) -> None:
        if (silent := broker.silent) is not None:
            broker.silent = None
            self._loop.within(broker.process, silent.set)

    def _peaks(self, broker: BalancedBroker, points: float) -> None:
        self.world.note(broker.name, "has other work", points)
        broker.peak_points = points
        self._watch.disturbed(broker.id)

    def _load_changes(self) -> None:
        if not self._is_healed:
            self.world.note("the load is another one")
            self._demand.spread(self.world.random, self.world.random.choice(_POINTS))
            self._watch.disturbed(*(broker.id for broker in self._members))

    def _drain(self, broker: BalancedBroker) -> None:
        asked = self._members[0] if broker is not self._members[0] else self._members[1]
        if self._has_drained or not (asked.process.is_up and asked.serves):
            return
        self._has_drained = True
        self.world.note(broker.name, "is drained")
        self._run(asked, lambda: asked.store.put(drain_path(broker.id), b""))

    def _leads_anew(self, silent: BalancedBroker, new: BalancedBroker) -> None:
        """A broker that has just begun may lead, and finds the old report of one that does not report any
        more."""
        self._falls_silent(silent)
        self.world.at(19 * _S, self._restart, new, _S)
        self.world.at(22 * _S, self._leader_restarts)
        self.world.at(23 * _S, self._load_changes)
        self.world.at(40 * _S, self._speaks, silent)

    def _leader_restarts(self) -> None:
        for broker in self._members:
            if broker.leads():
                self._restart(broker, 12 * _S)
                return

    def _run(self, broker: BalancedBroker, work: Callable[[], Any]) -> None:
        """As an operator who asks this broker, and is told the refusal, if there is one."""

        async def asked() -> None:
            await asyncio.gather(work(), return_exceptions=True)

        self._loop.within(broker.process, lambda: self._loop.start(broker.process, asked()))

    def _pause(self, broker: Any) -> None:
        self._watch.disturbed(broker.id)
        super()._pause(broker)

    def _go_on(self, broker: Any) -> None:
        self._watch.disturbed(broker.id)
        super()._go_on(broker)

    def _cut(self, left: str, right: str) -> None:
        self._watch.disturbed(f"{left}:8080")
        super()._cut(left, right)

    def _mend(self, left: str, right: str) -> None:
        self._watch.disturbed(f"{left}:8080")
        super()._mend(left, right)

    # -- aimed at a move ---------------------------------------------------------------------------

    def _stop(self, broker: BalancedBroker, for_us: int) -> None:
        self._pause(broker)
        self.world.at(for_us, self._go_on, broker)

    def _named(self, broker_id: str) -> BalancedBroker:
        return next(each for each in self._members if each.id == broker_id)

    def _restart(self, broker: BalancedBroker, after_us: int = 3 * _S) -> None:
        if not self._is_healed:
            broker.crash()
            self.world.at(after_us, broker.start)

    def _leader_stops_for_short(self, leader: BalancedBroker, _: Shed) -> None:
        self._stop(leader, 300 * _MS)

    def _leader_stops_for_long(self, leader: BalancedBroker, _: Shed) -> None:
        self._stop(leader, 6 * _S)

    def _leader_dies(self, leader: BalancedBroker, _: Shed) -> None:
        self.world.at(self.world.random.randint(1, 5_000), self._restart, leader)

    def _owner_hangs(self, _: BalancedBroker, shed: Shed) -> None:
        """Its topics cannot be closed, as what was appended gets no answer."""
        name = self._named(shed.source).name
        self._cut(name, BOOKIES)
        self.world.at(8 * _S, self._mend, name, BOOKIES)

    def _owner_dies(self, _: BalancedBroker, shed: Shed) -> None:
        self.world.at(1, self._restart, self._named(shed.source))

    def _target_dies(self, _: BalancedBroker, shed: Shed) -> None:
        self.world.at(1, self._restart, self._named(shed.target))

    def _operator_is_faster(self, leader: BalancedBroker, shed: Shed) -> None:
        """The operator moves the bundle, and the leader stops until that was done."""
        others = [each for each in self._members if each.id not in (shed.source, shed.target)]
        asked = self.world.random.choice(others)
        if asked is not leader and asked.process.is_up and asked.serves:
            self._run(asked, lambda: asked.owners.move(shed.bundle, asked.id))
            self._stop(leader, 350 * _MS)

    def _operator_splits(self, leader: BalancedBroker, shed: Shed) -> None:
        self._by_operator = True
        self._split(self._named(shed.source))

    # -- what must hold ----------------------------------------------------------------------------

    def _written(self, path: str, data: bytes | None) -> None:
        super()._written(path, data)
        self._watch.written(path, data)
        if path == keys.namespace_policies(NAMESPACE) and data is not None:
            before, self._count = self._count, len(json.loads(data)["bundles"]["boundaries"]) - 1
            if self._count > max(before, self._settings.bundles_max) and before and not self._by_operator:
                self._violated("bundles", f"the namespace has {self._count}")

    def _heal(self) -> None:
        super()._heal()
        self._watch.aims.clear()
        for broker in self._members:
            self._speaks(broker)
            self._peaks(broker, 0.0)

    def _settle(self) -> None:
        self._loop.run_until(self.world.now_us + _SETTLES_US)
        self._watch.steady_us = self.world.now_us
        self._loop.run_until(self.world.now_us + _CALM_US)

    def _check_end(self) -> None:
        super()._check_end()
        leaders = [broker.name for broker in self._members if broker.leads()]
        if len(leaders) != 1:
            self._violated("leader", f"those that lead in the end: {leaders}")
        drained = self._node.nodes.children(drain_path("x").rsplit("/", 1)[0])
        if kept := [str(bundle) for bundle, owner in self._owners() if owner in drained]:
            self._violated("drained", f"{drained} still have {kept}")
        self._watch.check_even([each.id for each in self._members if each.id not in drained])
