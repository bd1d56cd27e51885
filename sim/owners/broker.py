"""A broker of the simulated cluster: the product's ownership and registry, on logs that only know a fence."""

from __future__ import annotations

import asyncio
import random as global_random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.listeners import NOWHERE, Addresses
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.peers import Probe
from magnetar.broker.ownership.place import TopicPlace
from magnetar.broker.ownership.records import BrokerUrls, Load
from magnetar.broker.policies.policies import PolicyStore
from magnetar.broker.registry.registry import TopicRegistry
from magnetar.metadata.store import SessionEvent
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process
from sim.cluster.store import SimStore, StoreNode
from sim.owners.bookies import BOOKIES, SimBookies
from sim.rules import RulesInForce

_T = TypeVar("_T")

NAMESPACE: Final = NamespaceName("public", "default")
_LONGEST_WAIT_S: Final = 3.0
"""Longest wait of the registry, in virtual seconds."""


async def _idle() -> Load:
    """What a broker without clients has to do."""
    return Load()


class _Log:
    """What the registry asks of a log."""

    def __init__(self, name: str, listener: object) -> None:
        self.name = name
        self.listener = listener


class SimTopic:
    """A loaded topic."""

    def __init__(self, broker: SimBroker, name: TopicName, opening: int) -> None:
        self.name = name
        self.opening = opening
        self.closed = False
        self.assigned = NOWHERE
        self.log = _Log(str(name), self)
        self.messages_in = self.bytes_in = 0
        """Those of its demand: what is published for the story is not counted."""
        self.producers: dict[str, Any] = {"client": None}
        self.subscriptions: dict[str, Any] = {}
        self._broker = broker
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def disconnect_clients(self) -> None:
        """Nothing more is answered."""
        self.closed = True

    async def append(self, payload: int) -> None:
        """Returns when the entry is stored. Raises MagnetarError: it may be, or not."""
        self._check_open()
        self._pending += 1
        self._idle.clear()
        try:
            await self._broker.at_bookies(
                lambda bookies: bookies.append(str(self.name), self.opening, payload)
            )
        except MagnetarError:
            self.closed = True
            raise
        finally:
            self._pending -= 1
            if not self._pending:
                self._idle.set()
        # A topic that has sent its clients away cannot acknowledge anything to them.
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise ServiceNotReadyError(f"{self.name} is closed")

    async def close(self) -> None:
        """Waits for what is under way."""
        self.closed = True
        await self._idle.wait()


class _NoTopics:
    """Stands for the non-persistent topics: the scenario has none."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}

    def remove(self, topic: object) -> None:
        """Never called."""
        raise AssertionError(topic)


class SimBroker:
    """One broker over its lives. What rooms of the product ask of a broker, as far as ownership asks it."""

    owners: Owners
    registry: TopicRegistry
    policies: PolicyStore
    store: SimStore

    def __init__(
        self,
        node: StoreNode,
        bookies: SimBookies,
        name: str,
        probe: Callable[[SimBroker], bool],
        peers: Callable[[], Sequence[SimBroker]],
        violated: Callable[[str, str], None],
    ) -> None:
        """`probe`: whether a broker is taken for dead."""
        self.name = name
        self.process = Process(name)
        self.process.is_up = False
        self.clock = WorldClock(node.world)
        self.nonpersistent = _NoTopics()
        self.serves = False
        """Whether its start has ended."""
        self.sent_away = 0
        self._node = node
        self._bookies = bookies
        self._probe = probe
        self._peers = peers
        self._violated = violated

    @property
    def topics(self) -> dict[str, Any]:
        """Loaded ones."""
        return self.registry.topics

    @property
    def id(self) -> str:
        """Id of the broker in its records."""
        return f"{self.name}:8080"

    def start(self) -> None:
        """Its process begins."""
        if self.process.is_up:
            return
        self._node.world.note(self.name, "starts")
        process = self.process = Process(self.name)
        self.serves = False
        self._node.wires.loop.start(process, self._main(SimStore(self._node, process)))

    async def _main(self, store: SimStore) -> None:
        self.store = store
        self.policies = PolicyStore(store, "sim")
        self.policies.documents.share()
        self.registry = TopicRegistry(_Logs(self), self.clock, wait_s=_LONGEST_WAIT_S)  # type: ignore[arg-type]  # as far as it is used
        urls = BrokerUrls(Addresses(plain=f"pulsar://{self.name}:6650", http=f"http://{self.id}"))

        async def probe(host: str, _: int) -> bool:
            await asyncio.sleep(0.001)
            return self._probe(next(each for each in self._peers() if each.name == host))

        self.owners = self._new_owners(urls, probe)
        while True:
            try:
                await self.owners.begin()
            except MagnetarError:
                await asyncio.sleep(0.05)
                await self.owners.close()
                self.owners = self._new_owners(urls, probe)
            else:
                break
        store.watch_session(self._session_changed)
        self.serves = True

    def _new_owners(self, urls: BrokerUrls, probe: Probe) -> Owners:
        return Owners(
            self,  # type: ignore[arg-type]  # as far as it is used
            urls,
            socket=self.name,
            probe=probe,
            load=_idle,
            version="",
            ownership_rules=RulesInForce.ownership,
        )

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_LOST:
            # The owners' own watch was first.
            for topic in self.registry.topics.values():
                if not topic.closed:
                    self._violated("session", f"{self.name} goes on with {topic.name} without its session")

    def crash(self) -> None:
        """The process is gone."""
        self._node.wires.loop.kill(self.process)

    # -- what clients ask --------------------------------------------------------------------------

    async def look_up(self, name: TopicName, *, authoritative: bool) -> TopicPlace:
        """See `Owners.locate`."""
        return await self.owners.locate(name, authoritative=authoritative)

    async def publish(self, name: TopicName, payload: int) -> None:
        """Returns with the acknowledgement. Raises MagnetarError."""
        topic: Any = await self.registry.get(name, create=True)
        await topic.append(payload)
        self.check()

    def check(self) -> None:
        """Asserts what must always hold of its bundles."""
        self.owners.ownership.check()

    async def at_bookies(self, work: Callable[[SimBookies], _T]) -> _T:
        """Does something there; the way takes time, and is cut or not."""
        wires, loop, process = self._node.wires, self._node.wires.loop, self.process
        answer: asyncio.Future[_T] = loop.create_future()

        def there() -> None:
            if wires.is_cut(process.name, BOOKIES):
                wires.world.at(wires.delay_us() + 5_000, there)
                return
            try:
                result = work(self._bookies)
            except MagnetarError as error:
                wires.world.at(wires.delay_us(), loop.within, process, back, None, error)
            else:
                wires.world.at(wires.delay_us(), loop.within, process, back, result, None)

        def back(result: Any, error: MagnetarError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        wires.world.at(wires.delay_us(), there)
        return await answer


class _Logs:
    """What is below the registry, in the order of `StoredTopics.load`."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker

    async def load(self, name: TopicName, *, create: bool) -> SimTopic:
        """Admission, recovery with a fence, and a last look."""
        assert create
        await self._broker.owners.admit(name)
        opening = await self._broker.at_bookies(lambda bookies: bookies.open(str(name)))
        # Recovery takes its time.
        await asyncio.sleep(0.002 + 0.02 * global_random.random())
        self._broker.owners.check_owned(name)
        return SimTopic(self._broker, name, opening)

    async def delete(self, name: TopicName, topic: object) -> None:
        """Nothing is deleted here."""
        raise AssertionError(name)


Call = Callable[[SimBroker], Awaitable[Any]]
