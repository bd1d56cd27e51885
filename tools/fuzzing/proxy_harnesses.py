"""Harnesses of the proxy: what clients, brokers and callers send. No bytes lead it to an unknown address."""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import urlsplit

from fuzzing.harness import Harness, require
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.proxy.client_states import ClientState
from magnetar.proxy.frames_of_broker import next_frame
from magnetar.proxy.http_rules import is_passed_on, redirected, to_broker, url_at
from magnetar.proxy.known_brokers import BrokerAddress, KnownBrokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.proxy.session import ProxySession
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import FrameError, encode_command
from magnetar.wire.server import ServerParser

_BROKERS: Final = (BrokerAddress("a", 6650), BrokerAddress("b", 6650))
_FRAME_BYTES_MAX: Final = 4_096
Type = pb.BaseCommand.Type

# Each refusal is a line there.
logging.getLogger("magnetar.proxy").setLevel(logging.CRITICAL)


async def _unasked(credentials: Credentials, peer: str) -> Identity:
    raise AssertionError("the driver says what clients prove")


class _Link:
    def ask(self, frame: bytes) -> None:
        """Sends nothing."""

    def end(self) -> None:
        """Closes nothing."""


class _Driver:
    """A client's connection without sockets; credentials that begin with an `a` are right."""

    def __init__(self, *, authenticates: bool) -> None:
        targets = KnownBrokers(tls=False)
        targets.replace(
            BrokerUrls(Addresses(f"pulsar://{each}", http=f"http://{each.host}:80")) for each in _BROKERS
        )
        proxy = Proxy(
            ProxyOptions(lookups_max=8), targets, ManualClock(), identify=_unasked if authenticates else None
        )
        self.told: list[str] = []
        self.checking: Credentials | None = None
        self.session = ProxySession(proxy, self, peer="10.0.0.1:5")
        proxy.greetings.came(self.session)

    def write(self, data: bytes) -> None:
        self.told.append(f"write {len(data)}")

    def close(self, reason: str) -> None:
        self.told.append("close")

    def abort(self, reason: str) -> None:
        self.told.append("abort")

    def look(self, now_s: float) -> None:
        self.told.append("look")

    def read_on(self) -> None:
        """The loop of the harness asks for room itself."""

    def check(self, credentials: Credentials) -> None:
        self.checking = credentials

    def reach(self, target: BrokerAddress, introduction: bytes) -> None:
        require(target in _BROKERS, f"the client leads the proxy to {target}")
        self.told.append(f"reach {target}")

    def open_link(self, target: BrokerAddress, introduction: bytes) -> _Link:
        require(target in _BROKERS, f"the client leads the proxy to {target}")
        self.told.append(f"link {target}")
        return _Link()

    def feed(self, data: bytes) -> None:
        """Parses like `ClientConnection`."""
        parser, rest, session = ServerParser(_FRAME_BYTES_MAX), bytearray(data), self.session
        while not session.closed and (room := session.room) > 0 and len(rest) >= 4:
            events, taken = parser.parse(rest, len(rest), room)
            del rest[:taken]
            if not events:
                return
            session.handle(events)
            if self.checking is not None:
                shown, self.checking = self.checking, None
                if shown.data.startswith(b"a"):
                    session.proven(Identity(shown.data.decode("utf-8", "replace")))
                else:
                    session.refused(ValueError("wrong"))
            session.check()


def _client(data: bytes) -> object:
    """The first byte says whether clients are authenticated; the rest comes from the client."""
    driver = _Driver(authenticates=bool(data[:1] and data[0] & 1))
    driver.feed(data[1:])
    session = driver.session
    proven = session.state not in (ClientState.SILENT, ClientState.CHECKING, ClientState.CLOSED)
    require(not proven or session.identity is not None or not data[0] & 1, "a client that proved nothing")
    session.ended("over")
    session.check()
    return driver.told


def _broker(data: bytes) -> object:
    """Frames of a broker that has been asked three questions."""
    driver = _Driver(authenticates=False)
    driver.feed(_frame(Type.CONNECT, connect=pb.CommandConnect(client_version="c", protocol_version=20)))
    for number in (1, 2, 3):
        body = pb.CommandLookupTopic(topic="persistent://p/d/t", request_id=number)
        driver.feed(_frame(Type.LOOKUP, lookupTopic=body))
    asked = len(driver.session.lookups)
    require(asked == 3, "three questions")
    given, at = bytearray(data), 0
    while (found := next_frame(given, at, _FRAME_BYTES_MAX)) is not None:
        kind, command, end = found
        require(at < end <= len(given), "a frame beyond what was read")
        at = end
        for target in _BROKERS:
            driver.session.lookups.answered(target, kind, command)
        driver.session.check()
    require(len(driver.session.lookups) <= asked, "questions that no client has asked")
    driver.session.ended("over")
    return driver.told


def _call(data: bytes) -> object:
    """A target, a query, a header and a redirect, each in a line."""
    target, query, header, location = (data.split(b"\n", 3) + [b""] * 4)[:4]
    seen: list[object] = []
    for broker in ("http://a:80", "https://a", "http://[::1]:8080"):
        url = url_at(broker, target, query)
        if url is not None:
            there, own = urlsplit(url), urlsplit(broker)
            require(there.hostname == own.hostname, f"a call leads to {there.hostname}")
            require(there.port == own.port, "a call leads to another port")
            require(there.username is None, "a call names a user")
        seen.append(url)
    name, _, value = header.decode("latin-1").partition(":")
    headers = to_broker([(name.lower(), value)], role="alice", own="Bearer own")
    require(headers["x-original-principal"] == "alice", "a client names its role")
    require(headers["authorization"] == "Bearer own", "a client's credentials in place of the proxy's")
    found = redirected(location.decode("latin-1"), ("http://a:80",))
    if found is not None:
        parts = urlsplit(found)
        require((parts.hostname, parts.port) == ("a", 80), f"a redirect leads to {parts.netloc}")
    return [*seen, found, is_passed_on(target.decode("latin-1"))]


def _frame(kind: pb.BaseCommand.Type, **body: object) -> bytes:
    return encode_command(pb.BaseCommand(type=kind, **body))  # type: ignore[arg-type]  # by the caller


def _client_seeds() -> list[bytes]:
    def connect(**more: object) -> bytes:
        body = pb.CommandConnect(client_version="c", protocol_version=20, **more)  # type: ignore[arg-type]  # as above
        return _frame(Type.CONNECT, connect=body)

    look_up = _frame(Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1))
    answer = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"a"))
    return [
        b"\0" + connect() + look_up + _frame(Type.PING, ping=pb.CommandPing()),
        b"\1" + connect(auth_method_name="token", auth_data=b"alice") + look_up,
        b"\1" + connect(auth_method_name="token", auth_data=b"x"),
        b"\0" + connect(proxy_to_broker_url="a:6650"),
        b"\0" + connect(proxy_to_broker_url="pulsar://b:6650/") + look_up,
        b"\0" + connect(proxy_to_broker_url="a:22"),
        b"\1" + connect(original_principal="root", auth_data=b"a"),
        b"\1" + connect(auth_data=b"a") + _frame(Type.AUTH_RESPONSE, authResponse=answer),
        b"\0" + connect()[:9],
    ]


def _broker_seeds() -> list[bytes]:
    Answer = pb.CommandLookupTopicResponse  # noqa: N806  # a class

    def placed(number: int, url: str, response: pb.CommandLookupTopicResponse.LookupType) -> bytes:
        body = Answer(request_id=number, brokerServiceUrl=url, response=response, authoritative=True)
        return _frame(Type.LOOKUP_RESPONSE, lookupTopicResponse=body)

    error = pb.CommandError(request_id=3, error=pb.ServerError.ServiceNotReady, message="no")
    return [
        placed(1, "pulsar://a:6650", Answer.Connect) + placed(2, "pulsar://b:6650", Answer.Redirect),
        placed(1, "pulsar://evil:6650", Answer.Redirect),
        _frame(Type.ERROR, error=error),
        _frame(Type.CONNECTED, connected=pb.CommandConnected(server_version="b")),
    ]


HARNESSES: Final = (
    Harness(
        name="proxy-client",
        run=_client,
        refusals=(FrameError,),
        seeds=_client_seeds,
        words=(b"a:6650", b"b:6650", b"pulsar://", b"@", b"[::1]", b"169.254.169.254:80"),
    ),
    Harness(name="proxy-broker", run=_broker, refusals=(FrameError,), seeds=_broker_seeds),
    Harness(
        name="proxy-calls",
        run=_call,
        refusals=(ValueError,),
        seeds=lambda: [
            b"/admin/v2/tenants\na=b\nx-original-principal: root\nhttp://a:80/admin/v2/x",
            b"%2fadmin%2f@evil:80/\n\nauthorization: Bearer x\nhttp://a:80@evil/admin/",
            b"//evil/admin/\n@evil\nhost: x\n//a:80/admin/",
        ],
        words=(b"%2f", b"@", b"//", b"http://", b":80", b"/admin/", b"#", b"?", b"\\", b"[", b"]"),
        input_bytes_max=512,
    ),
)
