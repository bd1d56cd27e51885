"""Several processes behind one port: what look-ups answer, and where a CONNECT leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.listeners import Addresses, Listeners
from magnetar.broker.ownership.bundle import Bundle
from magnetar.broker.ownership.owners import Owners
from magnetar.broker.ownership.records import (
    BrokerReport,
    BrokerUrls,
    Load,
    decode_move,
    move_path,
    owner_path,
)
from magnetar.broker.siblings.siblings import Siblings
from magnetar.metadata import keys
from magnetar.metadata.store import Value
from support.seen import Type
from support.sessions import TOPIC, Peer, World, command, in_world

OWN = BrokerUrls(
    Addresses("pulsar://here:6750", "pulsar+ssl://here:6751", "http://here:8180"),
    shared=Addresses("pulsar://here:6650", "", "http://here:8080"),
)
SECOND = BrokerUrls(
    Addresses("pulsar://here:6850", "pulsar+ssl://here:6851", "http://here:8280"), shared=OWN.shared
)
FAR = BrokerUrls(
    Addresses("pulsar://far:6750", "", "http://far:8180"),
    {"outside": Addresses("pulsar://outside:1", "", "", "")},
    shared=Addresses("pulsar://far:6650", "", "http://far:8080"),
)
PLACE = Path("/run/2.sock")
SIBLINGS = Siblings(OWN, {"here:6850": PLACE}, frozenset(("here:8280",)), frozenset((6650, 6750)))
REDIRECT, CONNECT = 0, 1
"""Types of the answer to a look-up."""


async def _idle() -> Load:
    return Load()


async def _alive(_host: str, _port: int) -> bool:
    return False


class Processes:
    """The first of two processes, in a world with brokers on other machines."""

    def __init__(self, world: World) -> None:
        self.world = world
        broker = world.broker
        broker.policies.documents.share()
        broker.listeners = Listeners(plain_port=6750, tls_port=6751)
        broker.siblings = SIBLINGS
        self.owners = broker.owners = Owners(
            broker, OWN, socket="here", probe=_alive, load=_idle, version="test"
        )

    async def begin(self) -> None:
        await self.owners.begin()

    async def bundle(self) -> Bundle:
        return await self.owners.bundle_of(TopicName.parse(TOPIC))

    async def there_is(self, urls: BrokerUrls, *, load: Load | None = None) -> None:
        """Another broker has told that it is there."""
        report = BrokerReport(urls, load or Load())
        await self.world.store.put(keys.broker(urls.broker_id), report.encode())
        await self.owners.peers.load()

    async def owns(self, urls: BrokerUrls) -> None:
        await self.world.store.put(owner_path(await self.bundle()), urls.encode())


def with_processes(story: Callable[[Processes], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        processes = Processes(world)
        await processes.begin()
        await story(processes)

    in_world(run)


async def looked_up(peer: Peer, **more: Any) -> tuple[int, str, bool]:
    """Type of the answer, URL, and whether the client stays at the address that it has."""
    peer.session.port = more.pop("port", 6650)
    request_id = more.pop("request_id", 7)
    answer = await peer.ask(Type.LOOKUP, topic=TOPIC, request_id=request_id, **more)
    return answer.response, answer.brokerServiceUrl, answer.proxy_through_service_url


def test_a_look_up_names_the_process_and_the_client_stays_at_the_shared_port() -> None:
    async def story(processes: Processes) -> None:
        peer = processes.world.peer()
        # This process claims the bundle, and then the second one has it.
        assert await looked_up(peer) == (CONNECT, "pulsar://here:6750", True)
        await processes.there_is(SECOND)
        await processes.owns(SECOND)
        processes.owners.let_go([await processes.bundle()])
        await processes.world.settle()
        await processes.owns(SECOND)
        assert await looked_up(peer, request_id=8) == (CONNECT, "pulsar://here:6850", True)
        # Over TLS nothing can be handed over: the client goes to the process itself.
        assert await looked_up(peer, request_id=9, port=6651) == (CONNECT, "pulsar://here:6850", False)
        answer = await peer.answer(9)
        assert answer.brokerServiceUrlTls == "pulsar+ssl://here:6851"

    with_processes(story)


def test_a_bundle_without_an_owner_is_meant_for_the_process_with_the_least_to_do() -> None:
    async def story(processes: Processes) -> None:
        peer = processes.world.peer()
        processes.owners.ownership.want(Bundle(TopicName.parse(TOPIC).namespace_name, 1, 2))
        await processes.there_is(SECOND)
        processes.owners.peers.leaving = frozenset((OWN.broker_id,))
        assert await looked_up(peer) == (CONNECT, "pulsar://here:6850", True)
        value = await processes.world.store.get(move_path(await processes.bundle()))
        assert value is not None
        assert decode_move(value.data) == SECOND.broker_id

    with_processes(story)


def test_a_topic_of_another_machine_is_looked_up_at_its_shared_port() -> None:
    async def story(processes: Processes) -> None:
        peer = processes.world.peer()
        await processes.there_is(FAR)
        await processes.owns(FAR)
        assert await looked_up(peer) == (REDIRECT, "pulsar://far:6650", False)
        named = await looked_up(peer, request_id=8, advertised_listener_name="outside")
        assert named == (REDIRECT, "pulsar://outside:1", False)
        # A broker that has its port for itself does the same.
        processes.world.broker.siblings = None
        assert await looked_up(peer, request_id=9) == (REDIRECT, "pulsar://far:6650", False)
        # There may be none, as before there were several processes.
        alone = replace(FAR, shared=Addresses())
        await processes.there_is(alone)
        await processes.owns(alone)
        assert await looked_up(peer, request_id=10) == (CONNECT, "pulsar://far:6750", False)

    with_processes(story)


def test_a_connect_that_names_another_process_goes_there_unanswered() -> None:
    async def story(processes: Processes) -> None:
        for named in ("here:6850", "pulsar://here:6850"):
            peer = processes.world.peer(connected=False)
            peer.send(command(Type.CONNECT, client_version="test", proxy_to_broker_url=named))
            await processes.world.settle()
            assert peer.handed_to == PLACE
            assert peer.seen == []
        for named in ("here:6750", "far:6750", "", "pulsar://[", "pulsar://here:6850]"):
            peer = processes.world.peer(connected=False)
            peer.send(command(Type.CONNECT, client_version="test", proxy_to_broker_url=named))
            await processes.world.settle()
            assert peer.handed_to is None
            assert peer.session.connected

    with_processes(story)


def test_a_process_gives_up_at_its_start_what_its_former_life_had() -> None:
    async def story(world: World) -> None:
        processes = Processes(world)
        bundle = await processes.bundle()
        other = Bundle(bundle.namespace, 0, 1)
        await world.store.put(owner_path(bundle), OWN.encode())
        await world.store.put(owner_path(other), FAR.encode())
        get = world.store.get

        async def of_a_former_session(path: str) -> Value | None:
            value = await get(path)
            return value and Value(value.data, value.stat._replace(created_by_self=False))

        world.store.get = of_a_former_session  # type: ignore[method-assign]  # memory has one session
        await processes.begin()
        assert await world.store.get(owner_path(bundle)) is None
        assert await world.store.get(owner_path(other)) is not None

    in_world(story)


def test_shared_addresses_are_in_the_records() -> None:
    assert BrokerUrls.decode(FAR.encode()) == FAR
    assert BrokerReport.decode(BrokerReport(OWN).encode()).urls == OWN
    assert b"sharedAddresses" not in replace(FAR, shared=Addresses()).encode()
