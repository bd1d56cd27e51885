"""Authentication and authorization over sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.names import NamespaceName
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, Type, World, command

EXPIRY_MS = 60_000


class ByName:
    """A provider that believes what it is told; "late" is valid for a minute."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        role = credentials.data.decode()
        if role == "liar":
            raise AuthenticationError("no such secret")
        return Identity(role, now_ms + EXPIRY_MS if role == "late" else None)


class BySlowName(ByName):
    slow = True


def guarded(story: Callable[[World], Awaitable[None]], *, anonymous: str = "") -> None:
    """Runs a story on a broker whose superuser is "root"; "writer" and "reader" have their grants."""

    async def run() -> None:
        chain = Authentication({"name": ByName(), "slow": BySlowName()}, anonymous)
        world = World(authentication=chain, superuser_roles=frozenset(("root",)))
        await world.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        grants = {"namespace_auth": {"writer": ["produce"], "reader": ["consume"]}}
        await world.broker.policies.update_namespace(
            NamespaceName.parse("public/default"), lambda document: document.update(auth_policies=grants)
        )
        try:
            await story(world)
        finally:
            await world.close()

    asyncio.run(run())


def connect(role: str, method: str = "name", **more: Any) -> bytes:
    return command(
        Type.CONNECT,
        client_version="test",
        protocol_version=19,
        auth_method_name=method,
        auth_data=role.encode(),
        **more,
    )


async def connected(world: World, role: str, method: str = "name") -> Peer:
    peer = world.peer(connected=False)
    peer.send(connect(role, method))
    await world.until(lambda: peer.commands(Type.CONNECTED) or peer.closed, "answer to CONNECT")
    return peer


async def codes(peer: Peer) -> dict[str, bool]:
    """What a client may do."""
    asked = {
        "produce": await peer.producer(1, request_id=1),
        "consume": await peer.consumer(1, request_id=2),
        "partitions": await peer.ask(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=3),
        "lookup": await peer.ask(Type.LOOKUP, topic=TOPIC, request_id=4),
        "topics": await peer.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=5),
        "schema": await peer.ask(Type.GET_SCHEMA, topic=TOPIC, request_id=6),
        "new schema": await peer.ask(
            Type.GET_OR_CREATE_SCHEMA,
            topic=TOPIC,
            request_id=7,
            schema=pb.Schema(name="", type=pb.Schema.Type.String, schema_data=b""),
        ),
    }
    refused = pb.AuthorizationError
    return {
        what: refused not in (getattr(answer, "error", None), getattr(answer, "error_code", None))
        for what, answer in asked.items()
    }


READ = {"partitions", "lookup", "topics", "schema"}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("root", {*READ, "produce", "consume", "new schema"}),
        ("writer", {*READ, "produce", "new schema"}),
        ("reader", {*READ, "consume"}),
        ("stranger", set()),
    ],
)
def test_every_command_asks_for_its_right(role: str, allowed: set[str]) -> None:
    async def story(world: World) -> None:
        peer = await connected(world, role)
        assert {what for what, may in (await codes(peer)).items() if may} == allowed

    guarded(story)


def test_a_refusal_tells_nothing_of_what_exists(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        peer = await connected(world, "stranger")
        texts = []
        for i, topic in enumerate((TOPIC, "persistent://nobody/nowhere/x")):
            answer = await peer.ask(Type.LOOKUP, topic=topic, request_id=i)
            assert answer.error == pb.AuthorizationError
            texts.append(answer.message.replace(topic, "T"))
        assert len(set(texts)) == 1
        assert f"refused: role 'stranger' of peer may not lookup: {TOPIC}" in caplog.messages

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (connect("liar"), "no such secret"),
        (connect("x", "unknown"), "'unknown' is not offered"),
        (connect("", ""), "credentials are needed"),
        (connect("proxy", original_principal="root"), "may not speak for others"),
    ],
)
def test_refused_connections_are_told_and_closed(frame: bytes, said: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        peer.send(frame)
        await world.until(lambda: peer.closed, "the connection is closed")
        peer.flush()
        assert said in (peer.closed or "")
        (error,) = peer.commands(Type.ERROR)
        assert error.error == pb.AuthenticationError
        assert not peer.commands(Type.CONNECTED)

    guarded(story)


def test_nothing_is_done_before_the_identity_is_known() -> None:
    async def story(world: World) -> None:
        for hasty in (connect("root"), command(Type.PING)):
            peer = world.peer(connected=False)
            peer.send(connect("root", "slow"), hasty)
            assert peer.closed == "the first command must be CONNECT"
        peer = world.peer(connected=False)
        peer.send(connect("root", "slow"))
        while not peer.commands(Type.CONNECTED):
            await asyncio.to_thread(int)

    guarded(story)


def test_unknown_methods_are_anonymous_where_there_is_such_a_role() -> None:
    async def story(world: World) -> None:
        peer = await connected(world, "", "unknown")
        assert peer.session.identity == Identity("writer")
        peer = world.peer(connected=False)
        peer.send(connect("liar"))
        await world.until(lambda: peer.closed, "wrong credentials are not anonymous")

    guarded(story, anonymous="writer")


def test_connections_end_with_their_credentials() -> None:
    async def story(world: World) -> None:
        peer = await connected(world, "late")
        world.clock.advance(EXPIRY_MS - 1)
        peer.session.keep_alive()
        assert peer.closed is None
        world.clock.advance(1)
        peer.session.keep_alive()
        assert "expired" in (peer.closed or "")

    guarded(story)
