"""The sockets of a client and of its brokers: which side is not read when the other one takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.proxy.broker_links import BrokerLink
from magnetar.proxy.client_connection import ClientConnection
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.lookups import IN_WORK_MAX
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.splice import ReadBuffer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command
from support.proxy_talk import connect, look_up


class NotedTransport(asyncio.Transport):
    """A socket that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reads = True
        self.ended = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True


class NotedClient(ClientConnection):
    """A client whose links are opened by the test."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy, ReadBuffer(), None)
        self.opening: list[BrokerLink] = []

    def _begin(self, link: BrokerLink) -> None:
        self._links.add(link)
        self.opening.append(link)

    def receive(self, data: bytes) -> None:
        """Bytes of the client arrive."""
        self.get_buffer(-1)[: len(data)] = data
        self.buffer_updated(len(data))


def proxy_of(url: str, options: ProxyOptions | None = None) -> Proxy:
    targets = KnownBrokers(tls=False)
    targets.replace([BrokerUrls(Addresses(url, http="http://a:80"))])
    return Proxy(options or ProxyOptions(), targets, ManualClock())


def with_client(story: Callable[[NotedClient, NotedTransport], None]) -> None:
    async def run() -> None:
        proxy = proxy_of("pulsar://a:6650")
        client, transport = NotedClient(proxy), NotedTransport()
        client.connection_made(transport)
        client.receive(encode_command(connect()) + encode_command(look_up(1)))
        story(client, transport)
        client.connection_lost(None)
        await proxy.tasks.close()

    asyncio.run(run())


@pytest.mark.parametrize("host", ["x" * 64, "a..b"])
def test_a_name_that_cannot_be_asked_for_is_a_broker_that_is_not_reached(host: str) -> None:
    async def run() -> None:
        proxy = proxy_of(f"pulsar://{host}:6650")
        client, transport = NotedClient(proxy), NotedTransport()
        client.connection_made(transport)
        client.receive(encode_command(connect(proxy_to_broker_url=f"{host}:6650")))
        await client.opening[0].open(None)
        assert b"cannot be reached" in transport.written
        assert transport.ended
        client.connection_lost(None)

    asyncio.run(run())


def test_a_client_that_takes_nothing_is_not_read_while_a_link_is_opened() -> None:
    def story(client: NotedClient, transport: NotedTransport) -> None:
        (link,) = client.opening
        client.pause_writing()
        assert not transport.reads
        of_broker = NotedTransport()
        link.connection_made(of_broker)
        assert not of_broker.reads, "its answers could not leave"
        client.resume_writing()
        assert transport.reads
        assert of_broker.reads

    with_client(story)


def test_a_client_is_read_again_while_a_link_is_opened() -> None:
    def story(client: NotedClient, transport: NotedTransport) -> None:
        client.pause_writing()
        client.resume_writing()
        assert transport.reads
        (link,) = client.opening
        of_broker = NotedTransport()
        link.connection_made(of_broker)
        assert of_broker.reads

    with_client(story)


def joined(story: Callable[[NotedClient, NotedTransport, BrokerLink, NotedTransport], None]) -> None:
    """A client that is spliced with a broker."""

    async def run() -> None:
        client, transport = NotedClient(proxy_of("pulsar://a:6650")), NotedTransport()
        client.connection_made(transport)
        client.receive(encode_command(connect(proxy_to_broker_url="a:6650")))
        assert not transport.reads, "nothing is read before the broker has answered"
        (link,) = client.opening
        of_broker = NotedTransport()
        link.connection_made(of_broker)
        answer(link, CONNECTED)
        assert bytes(transport.written) == CONNECTED
        story(client, transport, link, of_broker)

    asyncio.run(run())


CONNECTED = encode_command(
    pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="b"))
)


def answer(link: BrokerLink, data: bytes) -> None:
    link.get_buffer(-1)[: len(data)] = data
    link.buffer_updated(len(data))


def test_a_side_that_takes_nothing_stops_the_other_one() -> None:
    def story(
        client: NotedClient, transport: NotedTransport, link: BrokerLink, of_broker: NotedTransport
    ) -> None:
        for slow, other in ((client, of_broker), (link, transport)):
            slow.pause_writing()
            assert not other.reads
            slow.resume_writing()
            assert other.reads

    joined(story)


def test_a_side_that_is_lost_ends_the_other_one() -> None:
    def lost_client(
        client: NotedClient, transport: NotedTransport, link: BrokerLink, of_broker: NotedTransport
    ) -> None:
        client.connection_lost(None)
        assert of_broker.ended

    def lost_broker(
        client: NotedClient, transport: NotedTransport, link: BrokerLink, of_broker: NotedTransport
    ) -> None:
        link.connection_lost(None)
        assert transport.ended

    joined(lost_client)
    joined(lost_broker)


def test_a_connection_on_which_nothing_passes_ends() -> None:
    def story(
        client: NotedClient, transport: NotedTransport, link: BrokerLink, of_broker: NotedTransport
    ) -> None:
        client.session.look(1.0)
        answer(link, b"x")
        client.session.look(300.0)
        client.session.look(600.0)
        assert not transport.ended
        client.session.look(601.0)
        assert transport.ended

    joined(story)


def test_links_end_with_their_client() -> None:
    def story(client: NotedClient, transport: NotedTransport) -> None:
        (link,) = client.opening
        of_broker = NotedTransport()
        link.connection_made(of_broker)
        client.connection_lost(None)
        assert of_broker.ended

    with_client(story)


def test_a_broker_sends_no_frame_over_the_bound() -> None:
    def story(client: NotedClient, transport: NotedTransport) -> None:
        (link,) = client.opening
        of_broker = NotedTransport()
        link.connection_made(of_broker)
        answer(link, (1 << 20).to_bytes(4))
        assert of_broker.ended, "before CONNECTED a small one is expected"

    with_client(story)


@pytest.mark.parametrize("size", [CONNECT_BYTES_MAX + 1, 1 << 24])
def test_a_client_announces_no_large_frame_before_connect(size: int) -> None:
    async def run() -> None:
        client, transport = NotedClient(proxy_of("pulsar://a:6650")), NotedTransport()
        client.connection_made(transport)
        client.receive(size.to_bytes(4) + b"\0\0\0\1" if size < 1 << 20 else size.to_bytes(4))
        assert transport.ended

    asyncio.run(run())


def test_questions_over_the_bound_are_not_read() -> None:
    def story(client: NotedClient, transport: NotedTransport) -> None:
        client.receive(b"".join(encode_command(look_up(number)) for number in range(2, 50)))
        assert len(client.session.lookups) == IN_WORK_MAX
        assert not transport.reads

    with_client(story)


def test_connections_wait_for_their_connect_only_so_long() -> None:
    async def run() -> None:
        proxy = proxy_of("pulsar://a:6650", ProxyOptions(connect_s=2))
        silent, half, whole = (NotedClient(proxy) for _ in range(3))
        sockets = [NotedTransport() for _ in range(3)]
        for client, transport in zip((silent, half, whole), sockets, strict=True):
            client.connection_made(transport)
        half.receive(encode_command(connect())[:10])
        whole.receive(encode_command(connect()))
        assert len(proxy.greetings) == 2, "counted from the start, until CONNECT"
        for _ in range(3):
            proxy.greetings.look()
        assert [transport.ended for transport in sockets] == [True, True, False]
        for client in (silent, half, whole):
            client.connection_lost(None)

    asyncio.run(run())


def test_halves_of_connects_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr("magnetar.broker.session.greetings._KEPT_BYTES_MAX", 30)
        proxy = proxy_of("pulsar://a:6650")
        clients = [NotedClient(proxy) for _ in range(3)]
        sockets = [NotedTransport() for _ in range(3)]
        for client, transport in zip(clients, sockets, strict=True):
            client.connection_made(transport)
            client.receive(encode_command(connect())[:14])
        assert [transport.ended for transport in sockets] == [False, False, True]
        for client in clients:
            client.connection_lost(None)

    asyncio.run(run())


def test_a_broker_that_does_not_answer_connect_is_given_up() -> None:
    async def run() -> None:
        client = NotedClient(proxy_of("pulsar://a:6650", ProxyOptions(broker_s=0)))
        transport, of_broker = NotedTransport(), NotedTransport()
        client.connection_made(transport)
        client.receive(encode_command(connect(proxy_to_broker_url="a:6650")))
        client.opening[0].connection_made(of_broker)
        for _ in range(3):  # The timer is due at once.
            await asyncio.sleep(0)
        assert of_broker.ended
        assert b"has not answered CONNECT" in transport.written
        assert transport.ended
        client.connection_lost(None)

    asyncio.run(run())


def test_sockets_to_brokers_are_bounded_and_come_back() -> None:
    async def run() -> None:
        proxy = proxy_of("pulsar://a..b:6650", ProxyOptions(links_max=1))
        clients = [NotedClient(proxy) for _ in range(3)]
        sockets = [NotedTransport() for _ in range(3)]
        for client, transport in zip(clients, sockets, strict=True):
            client.connection_made(transport)
            client.receive(encode_command(connect(proxy_to_broker_url="a..b:6650")))
        assert proxy.take_link()
        await clients[0].opening[0].open(None)
        assert b"no socket left" in sockets[0].written
        proxy.give_link_back()
        # The name cannot be asked for, so the place is free again at once.
        for number in (1, 2):
            await clients[number].opening[0].open(None)
            assert b"cannot be reached" in sockets[number].written
        assert proxy.take_link()
        for client in clients:
            client.connection_lost(None)

    asyncio.run(run())
