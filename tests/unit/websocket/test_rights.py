"""Which roles may open a WebSocket: as on a connection of the binary protocol."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable

from magnetar.auth.authentication import Authentication
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import Credentials, Identity
from magnetar.base.names import NamespaceName
from magnetar.broker.handlers import renewals
from support.websockets import Clients, message, with_clients

PRODUCER = "v2/producer/persistent/public/default/t"
CONSUMER = "v2/consumer/persistent/public/default/t/s"


class ByName:
    """A provider that believes what it is told; "late" is valid for a minute."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        role = (
            (credentials.certificate_role or "") if credentials.method == "tls" else credentials.data.decode()
        )
        if role in ("", "liar"):
            raise AuthenticationError("no such secret")
        return Identity(role, now_ms + 60_000 if role == "late" else None)


def guarded(story: Callable[[Clients], Awaitable[None]]) -> None:
    chain = Authentication({"token": ByName(), "tls": ByName(), "basic": ByName()})

    async def granted(clients: Clients) -> None:
        grants = {"writer": ["produce"], "reader": ["consume"], "late": ["consume"]}
        await clients.world.broker.policies.update_namespace(
            NamespaceName.parse("public/default"),
            lambda document: document.update(auth_policies={"namespace_auth": grants}),
        )
        await story(clients)

    with_clients(granted, authentication=chain, superuser_roles=frozenset(("root",)))


def test_rights_are_those_of_the_binary_protocol() -> None:
    async def story(clients: Clients) -> None:
        bearer = {"Authorization": "Bearer writer"}
        cases = [
            (PRODUCER, {}, {}, 401),
            (PRODUCER, {"Authorization": "Bearer liar"}, {}, 401),
            (PRODUCER, {"Authorization": "Negotiate x"}, {}, 401),
            (PRODUCER, {"Authorization": "Basic %"}, {}, 401),
            (PRODUCER, bearer, {}, 101),
            (PRODUCER, {}, {"token": "writer"}, 101),
            (PRODUCER, {}, {"token": "reader"}, 403),
            (PRODUCER, {"Authorization": "Basic " + b64encode(b"root").decode()}, {}, 101),
            (CONSUMER, bearer, {}, 403),
            (CONSUMER, {}, {"token": "reader"}, 101),
            (PRODUCER, {**bearer, "X-Original-Principal": "root"}, {}, 403),
        ]
        for path, headers, query, status in cases:
            client = clients.start(path, headers, **query)
            assert await client.opened() == status, (path, headers, query, client.reason)
        assert clients.app.open.refused == 7

    guarded(story)


def test_a_certificate_is_a_credential() -> None:
    async def story(clients: Clients) -> None:
        client = clients.start(PRODUCER, certificate_role="writer")
        assert await client.opened() == 101
        other = clients.start(PRODUCER, certificate_role="reader")
        assert await other.opened() == 403

    guarded(story)


def test_who_loses_the_right_is_sent_away() -> None:
    async def story(clients: Clients) -> None:
        producer = clients.start(PRODUCER, token="writer")
        assert await producer.opened() == 101
        assert (await producer.ask(message(b"x")))["result"] == "ok"
        await clients.world.broker.policies.update_namespace(
            NamespaceName.parse("public/default"),
            lambda document: document.update(auth_policies={"namespace_auth": {}}),
        )
        code, reason = await producer.end()
        assert code == 4006
        assert reason.startswith("Client is not authorized")

    guarded(story)


def test_a_credential_that_ends_closes_its_socket() -> None:
    async def story(clients: Clients) -> None:
        consumer = clients.start(CONSUMER, token="late")
        assert await consumer.opened() == 101
        clients.world.clock.advance(120_000)
        await renewals.check_all(clients.world.broker)
        code, _ = await consumer.end()
        assert code == 4008

    guarded(story)


def test_a_broker_that_stops_says_so() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        clients.world.broker.registry.draining = True
        for session in list(clients.world.broker.sessions):
            session.close("the broker stops")
        assert await producer.end() == (1001, "the broker stops")
        clients.world.broker.registry.draining = False

    with_clients(story)
