"""Authentication and authorization over sessions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from magnetar.auth.authentication import Authentication, Provider
from magnetar.auth.errors import AuthenticationError, AuthorizationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.names import NamespaceName
from magnetar.broker.guard import Guard
from magnetar.broker.handlers import renewals
from magnetar.broker.service import BrokerConfig
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
        first, *others = role.split("+")
        return Identity(first, now_ms + EXPIRY_MS if role == "late" else None, also=tuple(others))

    def counts(self, proof: str) -> bool:
        return True


class BySlowName(ByName):
    slow = True


def guarded(story: Callable[[World], Awaitable[None]], **more: Any) -> None:
    """Runs a story on a broker whose superuser is "root"; "writer" and "reader" have their grants, and
    "proxy" has both. `more`: fields of the `Authentication`."""

    async def run() -> None:
        providers = {"name": ByName(), "slow": BySlowName()}
        chain = Authentication(providers, proxy_roles=frozenset(("proxy", "proxy-2")), **more)
        world = World(authentication=chain, superuser_roles=frozenset(("root",)))
        await world.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        await grant(world, writer=["produce"], reader=["consume"], proxy=["produce", "consume"])
        try:
            await story(world)
        finally:
            await world.close()

    asyncio.run(run())


async def grant(world: World, **grants: list[str]) -> None:
    """These are the grants of the namespace now."""
    await world.broker.policies.update_namespace(
        NamespaceName.parse("public/default"),
        lambda document: document.update(auth_policies={"namespace_auth": grants}),
    )


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
        topics = (TOPIC, "persistent://public/nowhere/x", "persistent://nobody/nowhere/x")
        for i, kind in enumerate((Type.LOOKUP, Type.PARTITIONED_METADATA)):
            texts = set()
            for j, topic in enumerate(topics):
                answer = await peer.ask(kind, topic=topic, request_id=10 * i + j)
                assert answer.error == pb.AuthorizationError
                texts.add(answer.message.replace(topic, "T"))
            assert len(texts) == 1
        assert f"refused: role 'stranger' of peer may not lookup: {TOPIC}" in caplog.messages

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (connect("liar"), "no such secret"),
        (connect("x", "unknown"), "'unknown' is not offered"),
        (connect("", ""), "credentials are needed"),
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


def test_who_says_connect_twice_is_sent_away() -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        peer.send(connect("orders", "slow"))
        while not peer.commands(Type.CONNECTED):
            await asyncio.to_thread(int)
        peer.send(connect("root", "slow"))
        assert peer.closed == "CONNECT came twice"

    guarded(story)


class Removed(BySlowName):
    """Users of a file from which all were removed."""

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        raise AuthenticationError("no such user")


class Held(BySlowName):
    """A check that takes until `release`."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        self.begun.set()
        assert self.release.wait(30)
        return super().identify(credentials, now_ms)


def test_an_answer_found_with_former_users_is_not_remembered() -> None:
    """The check began before the users were read again, and ends after it."""

    async def story(world: World) -> None:
        guard, held, mine = world.broker.guard, Held(), Credentials("slow", b"reader")
        assert guard is not None
        guard.change(replace(guard.authentication, providers={"slow": held}))
        asking = asyncio.create_task(guard.identify(mine, "peer:1"))
        assert await asyncio.to_thread(held.begun.wait, 30)
        guard.change(replace(guard.authentication, providers={"slow": Removed()}))
        held.release.set()
        assert await asking == Identity("reader")
        with pytest.raises(AuthenticationError, match="no such user"):
            await guard.identify(mine, "peer:1")

    guarded(story)


def test_unknown_methods_are_anonymous_where_there_is_such_a_role() -> None:
    async def story(world: World) -> None:
        peer = await connected(world, "", "unknown")
        assert peer.session.identity == Identity("writer")
        peer = world.peer(connected=False)
        peer.send(connect("liar"))
        await world.until(lambda: peer.closed, "wrong credentials are not anonymous")

    guarded(story, anonymous_role="writer")


@pytest.mark.parametrize(
    ("role", "more", "said"),
    [
        ("writer", {"original_principal": "reader"}, "may not speak for others"),
        ("proxy", {}, "must name its client's role"),
        ("proxy", {"original_principal": "proxy-2"}, "may not speak for another proxy"),
        (
            "proxy",
            {"original_principal": "x", "original_auth_method": "name", "original_auth_data": "proxy-2"},
            "may not speak for another proxy",
        ),
        ("proxy", {"original_principal": "reader"}, "credentials are needed"),
        (
            "proxy",
            {"original_principal": "reader", "original_auth_method": "name", "original_auth_data": "liar"},
            "no such secret",
        ),
    ],
)
def test_who_may_not_speak_for_others(
    role: str, more: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        peer.send(connect(role, **more))
        await world.until(lambda: peer.closed, "the connection is closed")
        peer.flush()
        (error,) = peer.commands(Type.ERROR)
        assert said in error.message
        wrong_credentials = "credentials" in said or "secret" in said
        assert error.error == (pb.AuthenticationError if wrong_credentials else pb.AuthorizationError)
        assert any(text.startswith("refused: ") and said in text for text in caplog.messages)

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


async def proxied(world: World, role: str, speaker: str = "proxy") -> Peer:
    """A connection through a proxy that forwards credentials."""
    peer = world.peer(connected=False)
    more = {"original_auth_method": "name", "original_auth_data": role}
    peer.send(connect(speaker, original_principal="whoever", **more))
    await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
    return peer


@pytest.mark.parametrize(
    ("speaker", "role", "allowed"),
    [
        ("proxy", "root", {*READ, "produce", "consume", "new schema"}),
        ("proxy", "writer", {*READ, "produce", "new schema"}),
        ("proxy", "stranger", set()),
        ("proxy-2", "root", set()),
    ],
)
def test_both_roles_need_the_right(speaker: str, role: str, allowed: set[str]) -> None:
    async def story(world: World) -> None:
        peer = await proxied(world, role, speaker)
        assert peer.session.identity == Identity(role, via=speaker)
        assert {what for what, may in (await codes(peer)).items() if may} == allowed

    guarded(story)


def test_the_word_of_a_proxy_is_taken_on_connecting_and_no_other_one_later() -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        peer.send(connect("proxy", original_principal="reader"))
        await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
        assert peer.session.identity == Identity("reader", via="proxy")
        # What follows CONNECT is the client's own: the proxy passes it on unread.
        for i, original in enumerate(("writer", "root", "stranger", "proxy", "proxy-2")):
            for kind in (Type.LOOKUP, Type.PARTITIONED_METADATA):
                answer = await peer.ask(kind, topic=TOPIC, request_id=i, original_principal=original)
                assert answer.error == pb.AuthorizationError
        answer = await peer.ask(Type.LOOKUP, topic=TOPIC, request_id=9, original_principal="reader")
        assert not answer.HasField("error")

    guarded(story, verify_original=False)


def test_a_command_for_another_role_needs_a_trusted_proxy() -> None:
    async def story(world: World) -> None:
        for peer in (await connected(world, "writer"), await proxied(world, "writer")):
            for i, kind in enumerate((Type.LOOKUP, Type.PARTITIONED_METADATA)):
                own = await peer.ask(kind, topic=TOPIC, request_id=2 * i, original_principal="writer")
                assert not own.HasField("error")
                other = await peer.ask(kind, topic=TOPIC, request_id=2 * i + 1, original_principal="root")
                assert other.error == pb.AuthorizationError

    guarded(story)


REFRESH = pb.FeatureFlags(supports_auth_refresh=True)


async def expiring(world: World, *, flags: pb.FeatureFlags = REFRESH, role: str = "late") -> Peer:
    """A connection whose credential ends after EXPIRY_MS."""
    peer = world.peer(connected=False)
    peer.send(connect(role, feature_flags=flags))
    await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
    return peer


async def check(world: World, peer: Peer) -> int:
    """One round of checks; how often the client was challenged so far."""
    await renewals.check_all(world.broker)
    peer.flush()
    return len(peer.commands(Type.AUTH_CHALLENGE))


def response(role: str, method: str = "name") -> bytes:
    return command(Type.AUTH_RESPONSE, response=pb.AuthData(auth_method_name=method, auth_data=role.encode()))


def test_clients_renew_what_has_expired() -> None:
    async def story(world: World) -> None:
        peer = await expiring(world)
        world.clock.advance(EXPIRY_MS - 1)
        assert await check(world, peer) == 0
        for count in (1, 2):
            world.clock.advance(EXPIRY_MS)
            assert await check(world, peer) == count
            challenge = peer.commands(Type.AUTH_CHALLENGE)[-1].challenge
            assert (challenge.auth_method_name, challenge.auth_data) == ("name", b"PulsarAuthRefresh")
            # Work goes on meanwhile.
            assert (await peer.ask(Type.GET_SCHEMA, topic=TOPIC, request_id=count)).request_id == count
            peer.send(response("late"))
            await world.settle()
            assert await check(world, peer) == count
        assert peer.closed is None

    guarded(story)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (response("liar"), "no such secret"),
        (response("root"), "must name the same role"),
        (response("late", "slow"), "by the method that they were shown by"),
    ],
)
def test_bad_renewals_close_the_connection(frame: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        peer = await expiring(world)
        world.clock.advance(EXPIRY_MS)
        assert await check(world, peer) == 1
        peer.send(frame)
        await world.until(lambda: peer.closed, "the connection is closed")
        peer.flush()
        (error,) = peer.commands(Type.ERROR)
        assert (error.error, said in error.message) == (pb.AuthenticationError, True)
        assert any(
            text.startswith("closed: role 'late' of peer") and said in text for text in caplog.messages
        )

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


def test_answers_that_nobody_asked_for_close_the_connection() -> None:
    async def story(world: World) -> None:
        for role in ("late", "root"):
            peer = await expiring(world, role=role)
            peer.send(response(role))
            assert peer.closed == "AUTH_RESPONSE without a challenge"
        peer = world.peer(connected=False)
        peer.send(response("root"))
        assert peer.closed == "the first command must be CONNECT"

    guarded(story)


def test_cve_2023_31007_connections_end_with_credentials_that_are_not_renewed() -> None:
    async def story(world: World) -> None:
        silent = await expiring(world)
        old = await expiring(world, flags=pb.FeatureFlags())
        through = await proxied(world, "writer", "proxy")
        world.clock.advance(EXPIRY_MS)
        assert await check(world, old) == 0
        assert "it cannot renew them" in (old.closed or "")
        assert silent.closed is None
        await check(world, silent)
        assert "it did not renew them" in (silent.closed or "")
        assert through.closed is None

    guarded(story)


def test_a_proxied_client_renews_its_own_credential() -> None:
    async def story(world: World) -> None:
        peer = world.peer(connected=False)
        more = {"original_auth_method": "name", "original_auth_data": "late", "feature_flags": REFRESH}
        peer.send(connect("proxy", "name", original_principal="late", **more))
        await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
        world.clock.advance(EXPIRY_MS)
        assert await check(world, peer) == 1
        peer.send(response("late"))
        await world.settle()
        assert peer.session.identity == Identity("late", world.clock.now_ms() + EXPIRY_MS, via="proxy")

    guarded(story)


def test_who_lost_a_right_is_sent_away_and_told_why_it_stays_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        writer, reader, root = [await connected(world, role) for role in ("writer", "reader", "root")]
        for peer in (writer, root):
            await peer.producer(1, request_id=1)
        for peer in (reader, root):
            await peer.consumer(1, request_id=2, subscription=f"s-{peer is root}")
        await grant(world, writer=["consume"], reader=["produce"])
        await world.until(
            lambda: writer.commands(Type.CLOSE_PRODUCER) and reader.commands(Type.CLOSE_CONSUMER), "sent away"
        )
        assert (await writer.producer(2, request_id=3)).error == pb.AuthorizationError
        assert (await reader.consumer(2, request_id=4)).error == pb.AuthorizationError
        assert not root.commands(Type.CLOSE_PRODUCER) + root.commands(Type.CLOSE_CONSUMER)
        (topic,) = world.broker.topics.values()
        assert not [consumer for each in topic.subscriptions.values() for consumer in each.consumers][1:]
        revoked = [text for text in caplog.messages if text.startswith("revoked: ")]
        assert len(revoked) == 2

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


def test_who_lost_a_right_without_a_connection_to_the_store_is_sent_away_after_it() -> None:
    async def story(world: World) -> None:
        writer = await connected(world, "writer")
        await writer.producer(1, request_id=1)
        world.store.away = True
        await grant(world, reader=["consume"])
        await world.settle()
        assert not writer.commands(Type.CLOSE_PRODUCER)
        world.store.back()
        await world.until(lambda: writer.commands(Type.CLOSE_PRODUCER), "sent away")
        assert (await writer.producer(2, request_id=2)).error == pb.AuthorizationError

    guarded(story)


def test_a_policy_that_takes_nothing_away_disturbs_nobody() -> None:
    async def story(world: World) -> None:
        writer = await connected(world, "writer")
        await writer.producer(1, request_id=1)
        await grant(world, writer=["produce"], stranger=["consume"])
        await world.settle()
        assert not writer.commands(Type.CLOSE_PRODUCER)

    guarded(story)


def test_a_right_that_is_lost_while_a_topic_is_opened_does_not_slip_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        open_topic = world.broker.topic

        async def open_late(*args: Any, **more: Any) -> Any:
            await grant(world)
            await world.settle()
            return await open_topic(*args, **more)

        monkeypatch.setattr(world.broker, "topic", open_late)
        writer, reader = [await connected(world, role) for role in ("writer", "reader")]
        await writer.producer(1, request_id=1)
        await world.until(lambda: writer.commands(Type.CLOSE_PRODUCER), "the producer is sent away")
        await grant(world, reader=["consume"])
        await reader.consumer(1, request_id=2)
        await world.until(lambda: reader.commands(Type.CLOSE_CONSUMER), "the consumer is sent away")
        assert not writer.session.producers
        assert not reader.session.consumers

    guarded(story)


def test_subscriptions_have_roles_and_prefixes() -> None:
    async def story(world: World) -> None:
        async def allowed(role: str, subscription: str) -> bool:
            peer = await connected(world, role)
            answer = await peer.consumer(1, request_id=1, subscription=subscription)
            return getattr(answer, "error", None) != pb.AuthorizationError

        both = {"reader": ["consume"], "writer": ["consume"]}
        name = NamespaceName.parse("public/default")
        closed = {"namespace_auth": both, "subscription_auth_roles": {"closed": ["reader"]}}
        await world.broker.policies.update_namespace(name, lambda d: d.update(auth_policies=closed))
        assert await allowed("writer", "open")
        assert not await allowed("writer", "closed")
        assert await allowed("reader", "closed")
        await world.broker.policies.update_namespace(
            name, lambda document: document.update(subscription_auth_mode="Prefix")
        )
        assert not await allowed("reader", "other")
        assert await allowed("reader", "reader-1")

    guarded(story)


class Fetching:
    """Knows no role until its errand was run."""

    slow = False

    def __init__(self) -> None:
        self.asked = self.runs = 0
        self.known = self.hopeless = False
        self.started, self.go_on = threading.Event(), threading.Event()

    @property
    def target(self) -> str:
        return "keys"

    def run(self) -> None:
        self.runs += 1
        self.started.set()
        assert self.go_on.wait(20)
        self.known = not self.hopeless

    def identify(self, credentials: Credentials, now_ms: int) -> Identity | Fetching:
        self.asked += 1
        return Identity("root") if self.known else self


def test_the_loop_goes_on_while_keys_are_fetched_once_for_all() -> None:
    async def story(world: World) -> None:
        guard = world.broker.guard
        assert guard is not None
        fetching = Fetching()
        cast(dict[str, Provider], guard.authentication.providers)["far"] = fetching
        peers = [world.peer(connected=False) for _ in range(20)]
        for peer in peers:
            peer.send(connect("", "far"))
        await asyncio.to_thread(fetching.started.wait, 20)
        # Others are served meanwhile.
        await connected(world, "root")
        assert not any(peer.commands(Type.CONNECTED) for peer in peers)
        fetching.go_on.set()
        while not all(peer.commands(Type.CONNECTED) for peer in peers):
            await asyncio.to_thread(int)
        assert fetching.runs == 1

    guarded(story)


def test_keys_that_cannot_be_had_refuse_the_credentials() -> None:
    async def story(world: World) -> None:
        guard = world.broker.guard
        assert guard is not None
        fetching = Fetching()
        fetching.hopeless = True
        fetching.go_on.set()
        cast(dict[str, Provider], guard.authentication.providers)["far"] = fetching
        with pytest.raises(AuthenticationError, match="cannot be fetched"):
            await guard.identify(Credentials("far"), "peer")
        assert fetching.runs == fetching.asked <= 10

    guarded(story)


def test_without_authorization_whoever_is_authenticated_may_do_everything() -> None:
    async def run() -> None:
        chain = Authentication({"name": ByName()})
        world = World(BrokerConfig(authorization=False), authentication=chain)
        await world.broker.start("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
        try:
            peer = await connected(world, "stranger")
            assert all((await codes(peer)).values())
            guard = world.broker.guard
            assert guard is not None
            await guard.require_tenant(Identity("stranger"), "peer", "public")
            guard.require_superuser(Identity("stranger"), "peer")
            assert (await connected(world, "liar")).closed
        finally:
            await world.close()

    asyncio.run(run())


def test_a_watch_ends_with_the_right_to_look_up() -> None:
    async def story(world: World) -> None:
        reader, root = [await connected(world, role) for role in ("reader", "root")]
        for peer in (reader, root):
            fields = {"namespace": "public/default", "topics_pattern": ".*", "topics_hash": ""}
            peer.send(command(Type.WATCH_TOPIC_LIST, watcher_id=1, request_id=1, **fields))
        await world.until(
            lambda: all(p.commands(Type.WATCH_TOPIC_LIST_SUCCESS) for p in (reader, root)), "watch"
        )
        assert len(world.broker.watchers) == 2
        await grant(world)
        await world.until(lambda: len(world.broker.watchers) == 1, "the watch has ended")
        await root.producer(1, request_id=2)
        await world.until(lambda: root.commands(Type.WATCH_TOPIC_UPDATE), "the other goes on")
        assert not reader.commands(Type.WATCH_TOPIC_UPDATE)

    guarded(story)


@pytest.mark.parametrize(
    ("roles", "may"),
    [
        ("stranger+writer", {"produce"}),
        ("reader+writer", {"produce", "consume"}),
        ("stranger+other", set()),
        ("stranger+proxy", set()),
        ("stranger+root", {"produce", "consume"}),
    ],
)
def test_what_one_of_several_roles_may_do_the_client_may(roles: str, may: set[str]) -> None:
    """But a proxy's role speaks for others only: beside others it brings nothing."""

    async def story(world: World) -> None:
        found = await codes(await connected(world, roles))
        assert {each for each in ("produce", "consume") if found[each]} == may

    guarded(story)


def test_several_roles_administer_and_read_metrics_by_one_of_them() -> None:
    async def story(world: World) -> None:
        guard = world.broker.guard
        assert guard is not None
        for identity, allowed in (
            (Identity("stranger", also=("root",)), True),
            (Identity("stranger", also=("other",)), False),
            (Identity("stranger", via="proxy", also=("root",)), False),
            (Identity("stranger", via="root", also=("root",)), True),
        ):
            assert guard.is_superuser(identity) is allowed
            for ask in (
                lambda who=identity: guard.require_metrics(who, "test"),
                lambda who=identity: guard.require_superuser(who, "test"),
            ):
                if allowed:
                    ask()
                else:
                    with pytest.raises(AuthorizationError):
                        ask()

    guarded(story)


class Checking(ByName):
    """A slow provider that notes the roles that it checks, and waits for leave each time."""

    slow = True

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.leave = threading.Semaphore(0)

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        self.checked.append(credentials.data.decode())
        assert self.leave.acquire(timeout=30)
        return super().identify(credentials, now_ms)


def with_checking(story: Callable[[World, Guard, Checking], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        checking = Checking()
        guard = world.broker.guard
        assert guard is not None
        guard.change(Authentication({"dear": checking}))
        await story(world, guard, checking)

    guarded(run)


def dear(name: str) -> Credentials:
    return Credentials("dear", name.encode())


def test_what_a_dear_check_found_is_remembered_until_credentials_change() -> None:
    async def story(world: World, guard: Guard, checking: Checking) -> None:
        checking.leave.release(8)
        for _ in range(3):
            assert await guard.identify(dear("root"), "10.0.0.1:1") == Identity("root")
            with pytest.raises(AuthenticationError, match="no such secret"):
                await guard.identify(dear("liar"), "10.0.0.1:2")
        assert checking.checked == ["root", "liar"]
        world.broker.credentials_changed(guard.authentication)
        await guard.identify(dear("root"), "10.0.0.1:1")
        assert checking.checked == ["root", "liar", "root"]

    with_checking(story)


def test_who_guesses_does_not_keep_others_waiting() -> None:
    async def story(world: World, guard: Guard, checking: Checking) -> None:
        guesses = [
            asyncio.ensure_future(guard.identify(dear(f"guess {number}"), f"10.0.0.1:{number}"))
            for number in range(100)
        ]
        await world.until(lambda: len(checking.checked) == 2, "as many are checked as there are places")
        other = asyncio.ensure_future(guard.identify(dear("root"), "10.0.0.2:1"))
        await world.settle()
        crowded = [guess for guess in guesses if guess.done()]
        assert len(crowded) == 100 - 2 - 32
        with pytest.raises(AuthenticationError, match="wait to be checked"):
            await crowded[0]
        checking.leave.release(4)
        assert await other == Identity("root")
        assert checking.checked.index("root") <= 3
        checking.leave.release(100)
        await asyncio.gather(*guesses, return_exceptions=True)

    with_checking(story)


def test_what_a_stranger_sent_is_cut_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "magnetar.audit"):
        Guard.refused_credentials(Credentials("token"), "peer:1", AuthenticationError("x" * 5_000))
    (text,) = caplog.messages
    assert "x" * 300 + "…" in text
    assert "x" * 301 not in text
