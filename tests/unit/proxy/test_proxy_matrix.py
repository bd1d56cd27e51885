"""Every caller × how the proxy is set up × what is asked: how far each gets, there and at the broker.

`proxy_matrix.txt` has what the proxy does with each command:

    first      opens a connection, once
    question   a broker is asked, in the client's name
    own        is answered by the proxy itself
    renewal    shows new credentials, when they were asked for
    refused    ends the connection

The sessions of proxy and broker are real, and so are the tokens: a broker gets what the proxy sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TOKEN, Credentials
from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.observability.metrics import Registry
from magnetar.proxy import http_app
from magnetar.proxy.http_app import ProxyApp
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.runtime.http_exchange import HttpAnswer
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import encode_command
from support.principals import HOME, MAY, NAMESPACE, SHOWN, GuardedWorld, may
from support.proxy_talk import Conversation, connect
from support.seen import FIELD_OF_TYPE
from support.sessions import TOPIC, Peer, Type, fill_required
from unit.broker.session.test_command_matrix import REFUSED, asking, code_of
from unit.broker.session.test_command_matrix import rows as rights_of_commands

TABLE: Final = Path(__file__).with_name("proxy_matrix.txt")
WORDS: Final = frozenset(("first", "question", "own", "renewal", "refused"))
OWN: Final = Credentials(METHOD_TOKEN, SHOWN["proxy alone"][0].encode())
MODES: Final = {"passes on": (False, False), "names the role": (True, False), "forwards": (True, True)}
"""Whether the proxy authenticates clients, and whether brokers get their credentials."""
MODE: Final = pytest.mark.parametrize("mode", MODES)
CLAIMS: Final = frozenset(who for who, (_, original) in SHOWN.items() if original)
"""Callers that name the role that they speak for."""
WRONG: Final = frozenset(("anonymous", "wrong", "expired", "alg=none", "garbage"))
KNOWN: Final = tuple(who for who in SHOWN if who not in CLAIMS | WRONG and who != "proxy alone")


def rows() -> dict[int, str]:
    """The word of each command."""
    found = {}
    for line in TABLE.read_text().splitlines():
        word, name = line.split()
        found[Type.Value(name)] = word
    return found


class Cells(GuardedWorld):
    """A guarded broker behind a proxy."""

    def __init__(self, mode: str) -> None:
        self.authenticates, self.forwards = MODES[mode]
        super().__init__(verify_original=self.forwards)
        self._requests = 100

    async def greeted(self, who: str, target: str = "") -> tuple[Conversation, list[str]]:
        """A client of the proxy that has sent its CONNECT, and what the proxy did."""
        talk = Conversation(
            authenticates=self.authenticates,
            forwards=self.forwards,
            own=OWN if self.authenticates else None,
        )
        token, original = SHOWN[who]
        fields: dict[str, object] = {"proxy_to_broker_url": target} if target else {}
        if token:
            fields |= {"auth_method_name": METHOD_TOKEN, "auth_data": token.encode()}
        if original:
            fields["original_principal"] = original
        told = talk.says(connect(**fields))
        if told and told[0].startswith("check "):
            assert self.broker.guard is not None
            shown = Credentials(METHOD_TOKEN if token else "", token.encode())
            try:
                talk.session.proven(await self.broker.guard.identify(shown, "10.0.0.1:5"))
            except AuthenticationError as error:
                talk.session.refused(error)
            told = talk.told()
        return talk, told

    async def through(self, who: str) -> Peer | None:
        """The caller's connection at the broker; None: the proxy has made none."""
        talk, told = await self.greeted(who, "a:6650")
        if told != ["reach a:6650"]:
            return None
        peer = self.peer(connected=False)
        peer.send(encode_command(pb.BaseCommand(type=Type.CONNECT, connect=talk.introduction)))
        await self.until(lambda: peer.commands(Type.CONNECTED) or peer.closed, "answer to CONNECT")
        return peer

    async def code(self, peer: Peer, kind: int, topic: str) -> int | None:
        """The error of the answer to a command about a topic."""
        self.cells += 1
        self._requests += 1
        request_id = self._requests
        peer.send(asking(kind, topic, request_id))
        answer = await self.until(lambda: peer.find_answer(request_id) or peer.closed, Type.Name(kind))
        assert not isinstance(answer, str), (Type.Name(kind), topic, answer)
        return code_of(answer)


def story(mode: str, work: Callable[[Cells], Awaitable[None]]) -> None:
    async def run() -> None:
        world = Cells(mode)
        await world.prepare()
        try:
            await work(world)
        finally:
            await world.close()

    asyncio.run(run())


def test_every_command_has_a_row() -> None:
    assert set(rows()) == set(Type.values())
    assert set(rows().values()) == WORDS


@MODE
def test_who_gets_to_a_broker(mode: str) -> None:
    async def work(world: Cells) -> None:
        for who in SHOWN:
            for target in ("", "a:6650", "evil:6650"):
                talk, told = await world.greeted(who, target)
                stopped = who in CLAIMS or (world.authenticates and who in WRONG)
                if stopped or target == "evil:6650":
                    assert told[0].startswith("client: ERROR"), (who, target, told)
                    assert talk.session.closed
                    assert not talk.links
                    assert not talk.introduction.client_version, "a broker hears of the client"
                else:
                    assert told == (["reach a:6650"] if target else ["client: CONNECTED"]), (who, told)
            peer = await world.through(who)
            assert (peer is None) == stopped, who
            if peer is not None:
                # A proxy speaks for no proxy, and strangers are the broker's to refuse where it sees them.
                assert bool(peer.closed) == (who in WRONG or who == "proxy alone"), who

    story(mode, work)


@MODE
def test_every_caller_has_its_own_rights_behind_the_proxy(mode: str) -> None:
    """Where the proxy has a role, that needs the right as well: it is granted in one namespace."""

    async def work(world: Cells) -> None:
        wrong: list[Any] = []
        for who in KNOWN:
            peer = await world.through(who)
            assert peer is not None
            for kind, word in rights_of_commands().items():
                if word in MAY:
                    code = await world.code(peer, kind, TOPIC)
                    if (code == REFUSED) != (who not in MAY[word]):
                        wrong.append((who, Type.Name(kind), TOPIC, code))
            for kind, word in (
                (Type.LOOKUP, "lookup"),
                (Type.PRODUCER, "produce"),
                (Type.SUBSCRIBE, "consume"),
            ):
                for topic, home in HOME.items():
                    code = await world.code(peer, kind, topic)
                    through = code is None if not home else code != REFUSED
                    allowed = may(who, word, home) and (home == NAMESPACE or not world.authenticates)
                    if through != allowed and (through or home):
                        wrong.append((who, Type.Name(kind), topic, code))
        assert not wrong
        assert world.cells > 500

    story(mode, work)


@MODE
def test_every_command_at_the_proxy_itself(mode: str) -> None:
    async def work(world: Cells) -> None:
        wrong: list[Any] = []
        for who in SHOWN:
            for kind, word in rows().items():
                talk, _ = await world.greeted(who)
                was_closed = talk.session.closed
                told = talk.says(filled(kind))
                asked = [each for each in told if each.startswith("to a:6650")]
                if was_closed:
                    fits = not told and not talk.links
                elif word == "question":
                    fits = len(asked) == 1 and not talk.session.closed
                elif word == "own":
                    fits = not asked and not talk.session.closed and len(talk.links) == 0
                elif word == "renewal":
                    # Where the proxy checks credentials, an answer without a question ends the connection.
                    fits = not asked and talk.session.closed == world.authenticates
                else:
                    fits = told[:1] == ["client: ERROR NotAllowedError"] and talk.session.closed
                if not fits:
                    wrong.append((who, Type.Name(kind), told))
        assert not wrong

    story(mode, work)


def test_nothing_but_a_connect_comes_first() -> None:
    for kind, word in rows().items():
        talk = Conversation()
        talk.says(filled(kind))
        assert talk.session.closed == (word != "first"), Type.Name(kind)
        assert not talk.links


def filled(kind: int) -> pb.BaseCommand:
    """The command with what it must have and nothing else."""
    command = pb.BaseCommand(type=kind)  # type: ignore[arg-type]  # a number of the enumeration
    body = getattr(command, FIELD_OF_TYPE[kind])
    body.SetInParent()
    fill_required(body)
    return command


# -- over HTTP -------------------------------------------------------------------------------------

PAGES: Final = {"/status.html": "public", "/metrics": "operator", "/proxy-stats": "operator"}
"""What the proxy answers itself, and the right that it takes."""
FORGED: Final = {
    "x-original-principal": "root",
    "x-forwarded-for": "127.0.0.1",
    "x-real-ip": "127.0.0.1",
    "host": "evil",
    "cookie": "a=b",
    "connection": "x-original-principal",
}


class HttpCells:
    """The HTTP port of a proxy that authenticates, and what its broker was asked."""

    def __init__(self, world: GuardedWorld) -> None:
        targets = KnownBrokers(tls=False)
        targets.replace([BrokerUrls(Addresses("pulsar://a:6650", http="http://a:80"))])
        assert world.broker.guard is not None
        proxy = Proxy(
            ProxyOptions(), targets, ManualClock(), identify=world.broker.guard.identify, credentials=OWN
        )
        self._app = ProxyApp(proxy, superusers=frozenset(("root",)), tls=None)
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    async def exchange(
        self, method: str, url: str, body: bytes, headers: dict[str, str], *, tls: object
    ) -> tuple[HttpAnswer, list[tuple[str, str]]]:
        """In place of the broker."""
        self.asked.append((method, url, headers))
        return HttpAnswer(204, "", b""), []

    async def ask(self, who: str, method: str, path: str) -> int:
        """The status of an answer."""
        self.asked.clear()
        token, _ = SHOWN[who]
        shown = {"authorization": f"Bearer {token}"} if token else {}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET" if method == "*" else method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in {**FORGED, **shown}.items()],
            "client": ("10.0.0.1", 5),
        }
        await self._app(scope, receive, send)
        return int(sent[0]["status"])


def test_every_caller_of_every_route_over_http(monkeypatch: pytest.MonkeyPatch, nightly: bool) -> None:
    """Brokers get the proxy's credential and the role that the client has proven, and no other word of it.

    What they make of these stands in `authorization_matrix.txt`, by the callers behind a proxy.
    """
    from magnetar.admin.routes import all_routes

    async def work(world: GuardedWorld) -> None:
        port = HttpCells(world)
        monkeypatch.setattr(http_app, "exchange_with_headers", port.exchange)
        callers = [who for who in SHOWN if who not in CLAIMS]
        for at, (method, path, _) in enumerate(all_routes(Registry())):
            named = path.replace("{", "").replace("}", "").replace(":path", "")
            for who in callers if nightly else (callers[at % len(callers)],):
                status = await port.ask(who, method, named)
                known = who not in WRONG
                if path in PAGES:
                    continue  # below, by every caller
                passed = path.startswith(("/admin/", "/lookup/", "/topics/"))
                assert status == ((204 if passed else 404) if known else 401), (who, method, path, status)
                if not (known and passed):
                    assert not port.asked, (who, path)
                    continue
                ((_, url, headers),) = port.asked
                assert url == f"http://a:80{named}"
                role = {"proxy alone": "proxy"}.get(who, who)
                assert headers == {
                    "x-original-principal": role,
                    "authorization": f"Bearer {OWN.data.decode()}",
                }
        for path, word in PAGES.items():
            for who in callers:
                expected = 200 if word == "public" or who == "root" else 401 if who in WRONG else 403
                assert await port.ask(who, "GET", path) == expected, (who, path)
                assert not port.asked

    async def run() -> None:
        world = GuardedWorld()
        await world.prepare()
        try:
            await work(world)
        finally:
            await world.close()

    asyncio.run(run())
