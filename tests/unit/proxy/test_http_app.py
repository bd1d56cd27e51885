"""The HTTP port of the proxy without sockets: which calls it takes, and what brokers get of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.identity import METHOD_TLS, Credentials, Identity
from magnetar.base.clock import ManualClock
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.proxy import http_app
from magnetar.proxy.call_shares import CALLS_OF_ADDRESS_MAX
from magnetar.proxy.http_app import ProxyApp
from magnetar.proxy.http_rules import BODY_BYTES_MAX
from magnetar.proxy.known_brokers import KnownBrokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.proxy_options import ProxyOptions
from magnetar.runtime.http_exchange import HttpAnswer

ROOT = {"authorization": "Bearer root"}


class Port:
    """The port of a proxy before one broker, whose answers are `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, authenticates: bool = False) -> None:
        targets = KnownBrokers(tls=False)
        targets.replace([BrokerUrls(Addresses("pulsar://a:6650", http="http://a:80"))])
        self.proxy = Proxy(
            ProxyOptions(),
            targets,
            ManualClock(),
            identify=_identify if authenticates else None,
            credentials=Credentials("token", b"own") if authenticates else None,
        )
        self.app = ProxyApp(
            self.proxy, superusers=frozenset({"root"}), tls=None, takes_certificates=authenticates
        )
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers = [HttpAnswer(200, "", b"[]")]
        monkeypatch.setattr(http_app, "exchange_with_headers", self._exchange)

    async def _exchange(
        self, method: str, url: str, body: bytes, headers: dict[str, str], *, tls: object
    ) -> tuple[HttpAnswer, list[tuple[str, str]]]:
        self.asked.append((url, headers))
        return self.answers[min(len(self.asked), len(self.answers)) - 1], []

    async def call(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        receive: Callable[[], Awaitable[dict[str, Any]]] | None = None,
        address: str = "10.0.0.1",
        role: str | None = None,
    ) -> int:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": (address, 5),
            "state": {} if role is None else {STATE_CERTIFICATE_ROLE: role},
        }
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive or _nothing, send)
        return int(sent[0]["status"])


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("it waits for ever")


async def _identify(credentials: Credentials, peer: str) -> Identity:
    if credentials.method == METHOD_TLS:
        return Identity(str(credentials.certificate_role))
    if credentials.data not in (b"root", b"alice"):
        raise AuthenticationError("wrong")
    return Identity(credentials.data.decode())


def run(story: Awaitable[None]) -> None:
    async def main() -> None:
        await story

    asyncio.run(main())


def test_a_call_needs_credentials_and_brokers_get_the_proxys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch, authenticates=True)
        assert await port.call("/admin/v2/tenants") == 401
        assert await port.call("/admin/v2/tenants", {"authorization": "Bearer forged"}) == 401
        assert port.asked == []
        assert await port.call("/admin/v2/tenants", {"authorization": "Bearer alice"}) == 200
        assert port.asked == [
            ("http://a:80/admin/v2/tenants", {"x-original-principal": "alice", "authorization": "Bearer own"})
        ]

    run(story())


def test_figures_are_for_superusers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch, authenticates=True)
        for path in ("/metrics", "/proxy-stats"):
            assert await port.call(path) == 401
            assert await port.call(path, {"authorization": "Bearer alice"}) == 403
            assert await port.call(path, ROOT) == 200
        assert await port.call("/status.html") == 200

    run(story())


def test_a_certificate_counts_where_it_is_a_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        assert await Port(monkeypatch, authenticates=True).call("/metrics", role="root") == 200

    run(story())


def test_a_redirect_to_another_machine_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        port.answers = [HttpAnswer(307, "http://evil/admin/v2/tenants", b"")]
        assert await port.call("/admin/v2/tenants") == 502
        assert len(port.asked) == 1

    run(story())


def test_a_target_that_names_a_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        scope_path, raw = "/admin/@evil/", b"%2fadmin%2f@evil/"
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": scope_path, "raw_path": raw, "query_string": b""}
        await port.app({**scope, "headers": [], "client": None}, _nothing, send)
        assert sent[0]["status"] == 400
        assert port.asked == []

    run(story())


def test_slow_bodies_of_one_address_leave_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        slow = [
            asyncio.ensure_future(port.call("/admin/v2/x", receive=_never))
            for _ in range(CALLS_OF_ADDRESS_MAX)
        ]
        await asyncio.sleep(0)
        assert await port.call("/admin/v2/x") == 429
        assert await port.call("/admin/v2/x", address="10.0.0.2") == 200
        assert await port.call("/status.html") == 200
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert await port.call("/admin/v2/x") == 200, "the places are free again"

    run(story())


def test_a_body_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        pieces = 0

        async def receive() -> dict[str, Any]:
            nonlocal pieces
            pieces += 1
            return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

        assert await port.call("/admin/v2/x", receive=receive) == 413
        assert pieces == (BODY_BYTES_MAX >> 20) + 1
        assert port.asked == []

    run(story())


def test_bodies_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        monkeypatch.setattr("magnetar.proxy.call_shares.BODIES_BYTES_MAX", 100)
        whole = {"type": "http.request", "body": bytes(90), "more_body": False}

        async def receive() -> dict[str, Any]:
            return whole

        assert await port.call("/admin/v2/x", receive=receive) == 200
        assert await port.call("/admin/v2/x", receive=receive) == 200, "the first is given back"
        begun = asyncio.Event()

        async def half() -> dict[str, Any]:
            if begun.is_set():
                await asyncio.Event().wait()
            begun.set()
            return {**whole, "more_body": True}

        slow = asyncio.ensure_future(port.call("/admin/v2/x", receive=half))
        await begun.wait()
        await asyncio.sleep(0)
        assert await port.call("/admin/v2/x", receive=receive) == 429
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert await port.call("/admin/v2/x", receive=receive) == 200

    run(story())


def test_metrics_show_what_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        port = Port(monkeypatch)
        seen: list[object] = []
        port.app.collects(lambda out: (seen.append(out), ())[1])
        assert await port.call("/metrics") == 200
        assert len(seen) == 1
        assert json.dumps(port.proxy.stats()) == "[]"

    run(story())


def test_half_a_body_reaches_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """`36` of `3600` is a number too, which a policy would keep."""

    async def story() -> None:
        port = Port(monkeypatch)
        left = iter(
            [
                {"type": "http.request", "body": b"36", "more_body": True},
                {"type": "http.disconnect"},
            ]
        )

        async def receive() -> dict[str, Any]:
            return next(left)

        assert await port.call("/admin/v2/x", receive=receive) == 400
        assert port.asked == []

    run(story())
