"""Every kind of WebSocket × the role that opens it × what it names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from magnetar.websocket.paths import SocketRole
from support.principals import HOME, MAY, NAMESPACE, SHOWN, UNKNOWN, GuardedWorld, may
from support.sessions import TOPIC
from support.websockets import Client, Clients

KINDS: Final = {"producer": "produce", "consumer": "consume", "reader": "consume", "several": "consume"}
"""Kinds of sockets, and what they need."""
SPEAKERS: Final = frozenset(("proxy alone", "root for another", "proxy for itself"))
"""Roles with good credentials that may not speak for the role that they name."""


def headers(who: str) -> dict[str, str]:
    token, original = SHOWN[who]
    found = {"Authorization": f"Bearer {token}"} if token else {}
    return {**found, "X-Original-Principal": original} if original else found


def path_of(kind: str, topic: str) -> tuple[str, dict[str, str]]:
    """The path behind `/ws/`, and the query; the parts of a short name are those of the whole one."""
    if kind == "several":
        return "v3/consumer/s", {"topics": topic}
    domain, _, rest = topic.partition("://")
    if not rest:
        names = topic.split("/")
        domain, rest = "persistent", topic if len(names) == 3 else f"{NAMESPACE}/{topic}"
    tenant, _, more = rest.partition("/")
    namespace, _, local = more.partition("/")
    parts = [domain, tenant, namespace, quote(local, safe="")]
    return f"v2/{kind}/" + "/".join([*parts, "s"] if kind == "consumer" else parts), {}


class Sockets(Clients):
    """WebSockets of a guarded broker."""

    def __init__(self, world: GuardedWorld) -> None:
        super().__init__(world)
        self.guarded = world

    async def ask(self, who: str, kind: str, topic: str) -> tuple[int, str]:
        """Status and reason of a handshake, for all that it may have opened is closed again."""
        self.guarded.cells += 1
        path, query = path_of(kind, topic)
        client: Client = self.start(path, headers(who), **query)
        status = await client.opened()
        if status == 101:
            await client.leave()
        else:
            await client.task
        return status, client.reason


def story(work: Callable[[Sockets], Awaitable[None]]) -> None:
    async def run() -> None:
        world = GuardedWorld()
        await world.prepare()
        clients = Sockets(world)
        try:
            await work(clients)
        finally:
            await clients.close()
            await world.close()

    asyncio.run(run())


def test_every_kind_is_here() -> None:
    assert {role.value for role in SocketRole} | {"several"} == KINDS.keys()


def test_every_principal_and_every_kind() -> None:
    async def work(sockets: Sockets) -> None:
        wrong = []
        for who in SHOWN:
            for kind, word in KINDS.items():
                status, reason = await sockets.ask(who, kind, TOPIC)
                expected = 101 if who in MAY[word] else 401 if who in UNKNOWN - SPEAKERS else 403
                if status != expected:
                    wrong.append((who, kind, status, reason))
        assert not wrong
        assert sockets.guarded.cells == len(SHOWN) * len(KINDS)

    story(work)


def test_no_name_gets_anybody_further(nightly: bool) -> None:
    """At night every caller tries every name; else unknown callers try a part of the names each."""
    unknown = [who for who in SHOWN if who in UNKNOWN]

    async def work(sockets: Sockets) -> None:
        wrong: list[Any] = []
        for who in SHOWN:
            for kind, word in KINDS.items():
                for number, (topic, home) in enumerate(HOME.items()):
                    if who in UNKNOWN and not nightly and unknown.index(who) != number % len(unknown):
                        continue
                    status, reason = await sockets.ask(who, kind, topic)
                    allowed = may(who, word, home)
                    if status == 101 and not allowed:
                        wrong.append((who, kind, topic, status))
                    if status >= 500 or (status in (401, 403) and allowed):
                        wrong.append((who, kind, topic, status, reason))
        assert not wrong
        by_each = len(SHOWN) if nightly else len(SHOWN) - len(UNKNOWN) + 1
        assert sockets.guarded.cells == by_each * len(KINDS) * len(HOME)

    story(work)


def test_a_refusal_is_the_same_for_what_exists_and_what_does_not() -> None:
    names = (
        TOPIC,
        "persistent://public/default/u",
        "persistent://public/none/t",
    )

    async def work(sockets: Sockets) -> None:
        for who in ("stranger", "foreign"):
            for kind in KINDS:
                said = set()
                for name in names:
                    status, reason = await sockets.ask(who, kind, name)
                    said.add((status, reason.replace(name, "NAME")))
                assert len(said) == 1, (who, kind, said)
                assert next(iter(said))[0] == 403

    story(work)
