"""Harnesses of the proxy: what clients send it, what brokers answer, and targets of calls over HTTP.

The first byte chooses how the proxy is set up; the rest arrives over the socket, at once and in two reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from fuzzing.harness import Harness, require
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TOKEN, Credentials, Identity
from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.session.greetings import CONNECT_BYTES_MAX
from magnetar.proxy.broker_links import BrokerLink, BrokerTunnel
from magnetar.proxy.client_connection import ClientConnection
from magnetar.proxy.client_states import ClientState
from magnetar.proxy.frames_of_broker import next_frame
from magnetar.proxy.http_rules import is_passed_on, redirected, to_broker, to_client, url_at
from magnetar.proxy.introduction import VERSION
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.lookups import QUESTIONS, speaks_for_another
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.splice import ReadBuffer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command

_T = TypeVar("_T")
_Type = pb.BaseCommand.Type
_OWN: Final = Credentials(METHOD_TOKEN, b"the proxy's own")
_PROVEN: Final = "alice"
_BROKERS: Final = ("a:6650", "b:6650")
_WEB: Final = ("http://a:8080", "http://b:8080")
_SHARED: Final = ReadBuffer()
_FRAME_BYTES_MAX: Final = 1 << 24
_LOOP: Final = asyncio.new_event_loop()
"""The timers of connections need one; none of them is ever due."""


class _Socket(asyncio.Transport):
    """Takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self._reads = True
        self._ended = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Has no limits."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Notes it."""
        self.written += data

    def is_reading(self) -> bool:
        """Whether more is read."""
        return self._reads

    def pause_reading(self) -> None:
        """See `is_reading`."""
        self._reads = False

    def resume_reading(self) -> None:
        """See `is_reading`."""
        self._reads = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._ended

    def close(self) -> None:
        """See `is_closing`."""
        self._ended = True

    def abort(self) -> None:
        """See `is_closing`."""
        self._ended = True


class _Client(ClientConnection):
    """A client whose links are opened by the harness, and whose credentials it judges."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy, _SHARED, None)
        self.opening: list[BrokerLink] = []
        self.shown: list[Credentials] = []

    def _begin(self, link: BrokerLink) -> None:
        self._links.add(link)
        self.opening.append(link)

    def check(self, credentials: Credentials) -> None:
        """Waits for the harness."""
        self.shown.append(credentials)


async def _nobody(credentials: Credentials, peer: str) -> Identity:
    raise AssertionError("the harness says what they prove")


def _proxy(choice: int) -> Proxy:
    targets = KnownBrokers(tls=False)
    targets.replace(
        BrokerUrls(Addresses(f"pulsar://{at}", http=web)) for at, web in zip(_BROKERS, _WEB, strict=True)
    )
    authenticates = bool(choice & 1)
    return Proxy(
        ProxyOptions(forwards_credentials=bool(choice & 2)),
        targets,
        ManualClock(),
        identify=_nobody if authenticates else None,
        credentials=_OWN if authenticates else None,
    )


def _run(story: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    return _LOOP.run_until_complete(story())


def _receive(half: ClientConnection | BrokerLink, socket: _Socket, data: bytes) -> None:
    """Bytes arrive, if the socket is still read."""
    if not data or socket.is_closing() or not socket.is_reading():
        return
    half.get_buffer(-1)[: len(data)] = data
    half.buffer_updated(len(data))


def _frames(data: bytearray) -> list[tuple[int, pb.BaseCommand]]:
    """What the proxy has written: whole frames, nothing else."""
    found, at = [], 0
    while at < len(data):
        frame = next_frame(data, at, _FRAME_BYTES_MAX)
        require(frame is not None, "the proxy has written half a frame")
        assert frame is not None
        kind, command, at = frame
        found.append((kind, command))
    return found


# -- clients ---------------------------------------------------------------------------------------


def _of_client(data: bytes) -> object:
    choice, sent = (data[0] if data else 0), data[1:]
    whole = _run(lambda: _client_story(choice, [sent]))
    middle = len(sent) // 2
    cut = _run(lambda: _client_story(choice, [sent[:middle], sent[middle:]]))
    # An illegal frame ends the connection; commands before it may have been handled or not.
    require(whole == cut or whole[0] == cut[0] == "closed", f"at once {whole}, in two reads {cut}")
    return whole


async def _client_story(choice: int, reads: list[bytes]) -> tuple[str, list[int], int]:
    proxy = _proxy(choice)
    client, socket = _Client(proxy), _Socket()
    client.connection_made(socket)
    waiting = b""
    for read in reads:
        # What the proxy does not read stays in the kernel, until it reads again.
        waiting += read
        if socket.is_reading():
            _receive(client, socket, waiting)
            waiting = b""
        _judge(client, choice)
    _receive(client, socket, waiting)
    _judge(client, choice)
    said = _check_client(client, socket, choice)
    client.connection_lost(None)
    require(not proxy.sessions, "a client that has gone is still known")
    require(all(link._ended for link in client.opening), "a link outlives its client")
    await proxy.tasks.close()
    return said


def _judge(client: _Client, choice: int) -> None:
    while client.shown:
        client.shown.pop()
        if choice & 4:
            client.session.refused(AuthenticationError("these are wrong"))
        else:
            client.session.proven(Identity(_PROVEN))


def _check_client(client: _Client, socket: _Socket, choice: int) -> tuple[str, list[int], int]:
    session = client.session
    session.check()
    frames = _frames(socket.written)
    kinds = [kind for kind, _ in frames]
    require(kinds.count(_Type.CONNECTED) <= 1, "a client is welcomed twice")
    if choice & 1 and choice & 4:
        require(not client.opening, "a client whose credentials are wrong reaches a broker")
        require(_Type.CONNECTED not in kinds, "a client whose credentials are wrong is welcomed")
    if session.state is ClientState.SILENT:
        require(len(client._rest) <= CONNECT_BYTES_MAX + 4, "much is kept of a client before its CONNECT")
    for link in client.opening:
        require(str(link._target) in _BROKERS, f"the proxy reaches {link._target}")
        _check_introduction(link, choice)
        for kind, command in _frames(bytearray(b"".join(getattr(link, "_waiting", ())))):
            require(kind in QUESTIONS, f"a broker is asked {_Type.Name(kind)}")
            require(not speaks_for_another(kind, command), "a broker is asked for another role")
    return session.state.value, kinds, len(client.opening)


def _check_introduction(link: BrokerLink, choice: int) -> None:
    ((kind, command),) = _frames(bytearray(link._introduction))
    said = command.connect
    require(kind == _Type.CONNECT and said.proxy_version == VERSION, "the proxy does not introduce itself")
    if not choice & 1:
        require(not said.original_principal and not said.original_auth_data, "a client speaks for another")
        return
    require(said.original_principal == _PROVEN, f"a broker takes the client for {said.original_principal!r}")
    require(said.auth_data == _OWN.data, "the proxy comes with another credential than its own")
    require(bool(choice & 2) or not said.original_auth_data, "a broker gets a credential of the client's")


# -- brokers ---------------------------------------------------------------------------------------

_TOPIC: Final = "persistent://public/default/t"
_ASKED: Final = {
    1: pb.BaseCommand(type=_Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=_TOPIC, request_id=1)),
    2: pb.BaseCommand(
        type=_Type.PARTITIONED_METADATA,
        partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=_TOPIC, request_id=2),
    ),
    3: pb.BaseCommand(type=_Type.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic=_TOPIC, request_id=3)),
}
_CONNECTED: Final = encode_command(
    pb.BaseCommand(type=_Type.CONNECTED, connected=pb.CommandConnected(server_version="b"))
)


def _connect(target: str = "") -> bytes:
    more = {"proxy_to_broker_url": target} if target else {}
    connect = pb.CommandConnect(client_version="c", protocol_version=20, **more)  # type: ignore[arg-type]  # a text
    return encode_command(pb.BaseCommand(type=_Type.CONNECT, connect=connect))


def _of_broker(data: bytes) -> object:
    """The first byte: whether the client has a tunnel, and whether the broker says CONNECTED first."""
    choice, sent = (data[0] if data else 0), data[1:]
    if choice & 2:
        sent = _CONNECTED + sent
    story = _tunnel_story if choice & 1 else _question_story
    whole = _run(lambda: story([sent]))
    middle = len(sent) // 2
    cut = _run(lambda: story([sent[:middle], sent[middle:]]))
    require(whole == cut, f"at once {whole!r}, in two reads {cut!r}")
    return whole


async def _before_a_broker(first: bytes, reads: list[bytes]) -> tuple[_Client, _Socket, BrokerLink, _Socket]:
    """A client, and the first link to a broker, which has sent `reads`."""
    proxy = _proxy(0)
    client, socket = _Client(proxy), _Socket()
    client.connection_made(socket)
    _receive(client, socket, first)
    link, of_broker = client.opening[0], _Socket()
    link.connection_made(of_broker)
    for read in reads:
        _receive(link, of_broker, read)
    client.session.check()
    return client, socket, link, of_broker


async def _question_story(reads: list[bytes]) -> object:
    first = _connect() + b"".join(map(encode_command, _ASKED.values()))
    client, socket, link, of_broker = await _before_a_broker(first, reads)
    most = ProxyOptions().answer_bytes_max if link._greeted else CONNECT_BYTES_MAX
    require(len(link._rest) <= most, "much is kept of a broker's frame")
    answered = []
    for kind, command in _frames(socket.written)[1:]:
        require(kind != _Type.CONNECTED, "a client is welcomed twice")
        if kind == _Type.LOOKUP_RESPONSE:
            answer = command.lookupTopicResponse
            answered.append(answer.request_id)
            if answer.response == pb.CommandLookupTopicResponse.Connect:
                url = answer.brokerServiceUrl.removeprefix("pulsar://")
                require(url in _BROKERS, f"a client is led to {answer.brokerServiceUrl!r}")
                require(answer.proxy_through_service_url, "a client is led around the proxy")
        elif kind == _Type.PARTITIONED_METADATA_RESPONSE:
            answered.append(command.partitionMetadataResponse.request_id)
        elif kind == _Type.GET_SCHEMA_RESPONSE:
            answered.append(command.getSchemaResponse.request_id)
        elif kind == _Type.ERROR:
            answered.append(command.error.request_id)
        elif kind == _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE:
            answered.append(command.getTopicsOfNamespaceResponse.request_id)
        else:
            require(kind == _Type.AUTH_CHALLENGE, f"a broker sends a client {_Type.Name(kind)}")
    require(len(answered) == len(set(answered)), f"a question has two answers: {answered}")
    require(set(answered) <= _ASKED.keys(), f"answers to no question: {answered}")
    left = len(client.session.lookups)
    if not client.session.closed:
        require(left + len(answered) == len(_ASKED), f"{left} questions are left, {answered} have answers")
    for each in client.opening:
        require(str(each._target) in _BROKERS, f"the proxy reaches {each._target}")
    client.connection_lost(None)
    return sorted(answered), left, len(client.opening), of_broker.is_closing()


async def _tunnel_story(reads: list[bytes]) -> object:
    client, socket, link, of_broker = await _before_a_broker(_connect(_BROKERS[0]), reads)
    assert isinstance(link, BrokerTunnel)
    spliced = client.session.state is ClientState.SPLICED
    if spliced:
        sent = b"".join(reads)
        require(bytes(socket.written) == sent, "a client gets other bytes than its broker sent")
    else:
        frames = _frames(socket.written)
        require(all(kind == _Type.ERROR for kind, _ in frames), "half a welcome reaches the client")
        require(len(link._rest) <= CONNECT_BYTES_MAX, "much is kept of a broker's frame")
    client.connection_lost(None)
    return spliced, of_broker.is_closing(), len(socket.written)


# -- calls over HTTP -------------------------------------------------------------------------------


def _call(data: bytes) -> object:
    """Lines: the target, the query, a redirect, and headers."""
    target, query, location, *lines = (*data.split(b"\n"), b"", b"", b"")
    found = []
    for base in _WEB:
        url = url_at(base, target, query)
        if url is not None:
            require(urlsplit(url)[:2] == urlsplit(base)[:2], f"a call leads to {url!r}")
        found.append(url)
    there = redirected(location.decode("latin-1"), _WEB)
    if there is not None:
        parts = urlsplit(there)
        require(f"{parts.scheme}://{parts.netloc.lower()}" in _WEB, f"a redirect leads to {there!r}")
        require(parts.hostname in ("a", "b") and parts.username is None, f"a redirect leads to {there!r}")
        require(is_passed_on(parts.path), f"a redirect leads to {there!r}")
    given = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, _, value in (line.partition(b":") for line in lines)
    ]
    sent = to_broker(given, role=_PROVEN, own="Bearer own")
    require(sent["x-original-principal"] == _PROVEN, "a client names its role")
    require(sent["authorization"] == "Bearer own", "a client's credential takes the place of the proxy's")
    unproven = to_broker(given, role=None, own=None)
    require("x-original-principal" not in unproven, "a client names its role")
    back = to_client(given)
    require(all(name != b"location" for name, _ in back), "a client is led around the proxy")
    return found, there, sorted(sent), sorted(unproven), len(back)


# -- all -------------------------------------------------------------------------------------------


def _client_seeds() -> list[bytes]:
    asked = b"".join(map(encode_command, _ASKED.values()))
    named = pb.CommandLookupTopic(topic=_TOPIC, request_id=9, original_principal="root")
    forged = pb.CommandConnect(client_version="c", original_principal="root")
    shown = pb.CommandConnect(client_version="c", auth_method_name="token", auth_data=b"t")
    ping = encode_command(pb.BaseCommand(type=_Type.PING, ping=pb.CommandPing()))
    renewed = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"n"))
    commands = [
        _connect() + asked,
        _connect() + ping + asked * 2,
        _connect(_BROKERS[1]) + b"further bytes",
        _connect("evil:6650"),
        _connect() + encode_command(pb.BaseCommand(type=_Type.LOOKUP, lookupTopic=named)),
        encode_command(pb.BaseCommand(type=_Type.CONNECT, connect=forged)) + asked,
        encode_command(pb.BaseCommand(type=_Type.CONNECT, connect=shown))
        + encode_command(pb.BaseCommand(type=_Type.AUTH_RESPONSE, authResponse=renewed))
        + asked,
    ]
    return [bytes([choice]) + each for choice in (0, 1, 3, 5) for each in commands]


def _broker_seeds() -> list[bytes]:
    Answer = pb.CommandLookupTopicResponse  # noqa: N806  # a class
    answers = [
        pb.BaseCommand(
            type=_Type.LOOKUP_RESPONSE,
            lookupTopicResponse=Answer(request_id=1, brokerServiceUrl=url, response=how, authoritative=True),
        )
        for url, how in (
            ("pulsar://a:6650", Answer.Connect),
            ("pulsar://b:6650", Answer.Redirect),
            ("pulsar://evil:6650", Answer.Connect),
            ("pulsar://a:6650@evil:6650", Answer.Redirect),
        )
    ]
    partitions = pb.CommandPartitionedTopicMetadataResponse(request_id=2, partitions=3)
    refused = pb.CommandError(request_id=3, error=pb.ServerError.AuthorizationError, message="no")
    answers += [
        pb.BaseCommand(type=_Type.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=partitions),
        pb.BaseCommand(type=_Type.ERROR, error=refused),
        pb.BaseCommand(type=_Type.PING, ping=pb.CommandPing()),
        pb.BaseCommand(
            type=_Type.AUTH_CHALLENGE,
            authChallenge=pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="token")),
        ),
    ]
    frames = [encode_command(answer) for answer in answers]
    tunnelled = [b"\3further bytes", b"\1" + _CONNECTED + b"further bytes", b"\1" + frames[5]]
    return [b"\2" + b"".join(frames[:1] + frames[4:]), *(b"\2" + frame for frame in frames), *tunnelled]


HARNESSES: Final = (
    Harness(
        name="proxy-client",
        run=_of_client,
        refusals=(),
        seeds=_client_seeds,
        words=tuple(each.encode() for each in (*_BROKERS, "root")),
    ),
    Harness(
        name="proxy-broker",
        run=_of_broker,
        refusals=(),
        seeds=_broker_seeds,
        words=tuple(f"pulsar://{each}".encode() for each in _BROKERS),
    ),
    Harness(
        name="proxy-calls",
        run=_call,
        refusals=(),
        seeds=lambda: [
            b"/admin/v2/tenants\na=b\nhttp://a:8080/admin/v2/x\nauthorization: Bearer x\nlocation: /",
            b"@evil/admin/\n\nhttp://a:8080@evil/admin/\nx-original-principal: root",
            b"/%2f../x\n\\evil\nhttp://a:8080\\@evil/admin/",
            b"//evil/admin\n#x\nHTTP://A:8080/topics/\ncontent-length: 5",
        ],
        words=(b"//", b"@", b"%2f", b"\\", b"a:8080", b"://", b"\t", b"#", b"?", b"\r"),
        input_bytes_max=512,
    ),
)
