"""The HTTP port of the proxy (driver): pages of its own, and calls that brokers answer.

| Path | Answer | Needs |
|---|---|---|
| `/status.html` | 200 while clients are served; 503 when the proxy ends, or knows no broker | nothing |
| `/metrics` | metrics | a superuser's credentials, with authentication |
| `/proxy-stats` | open connections, as JSON | a superuser's credentials, with authentication |
| `/admin/…`, `/lookup/…`, `/topics/…` | a broker's; redirects are followed here | what the broker says |
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from typing import Final, TypeAlias

from starlette.types import Receive, Scope, Send

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import Identity
from magnetar.observability import logs, process
from magnetar.observability.metrics import CONTENT_TYPE, Collector, Registry
from magnetar.proxy.call_shares import CallShares
from magnetar.proxy.http_rules import BODY_BYTES_MAX, is_passed_on, redirected, to_broker, to_client, url_at
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.socket_tunnels import SocketTunnels
from magnetar.runtime.http_exchange import exchange_with_headers

_log = logging.getLogger("magnetar.proxy")

_ANSWER_S: Final = 60.0
"""Seconds for a broker's answer, redirects included."""
_BODY_S: Final = 60.0
"""Seconds for the arrival of a call's body."""
_REDIRECTS_MAX: Final = 5

_Answer: TypeAlias = tuple[int, list[tuple[bytes, bytes]], bytes]


class ProxyApp:
    """The application of the port."""

    def __init__(
        self,
        proxy: Proxy,
        *,
        superusers: frozenset[str],
        tls: ssl.SSLContext | None,
        takes_certificates: bool = False,
    ) -> None:
        """`superusers`: roles that may see the proxy's own figures. `tls`: for connections to brokers.
        `takes_certificates`: whether a client's certificate alone counts as a credential."""
        self._proxy = proxy
        self._superusers = superusers
        self._tls = tls
        self._takes_certificates = takes_certificates
        self.sockets = SocketTunnels(proxy, tls=tls, takes_certificates=takes_certificates)
        """The WebSockets of the same port."""
        self._next = 0
        self._shares = CallShares()
        self._registry = Registry()
        self._registry.collector(process.collect)
        self._registry.collector(logs.collect)
        self._registry.collector(proxy.collect)

    def collects(self, collector: Collector) -> None:
        """Adds a collector to `/metrics`."""
        self._registry.collector(collector)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, headers, body = await self._answered(scope, receive)
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answered(self, scope: Scope, receive: Receive) -> _Answer:
        path: str = scope["path"]
        given = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        if path == "/status.html":
            serves = not self._proxy.draining and len(self._proxy.targets) > 0
            return _page(200, b"OK") if serves else _page(503, b"the proxy ends, or knows no broker")
        identity: Identity | None = None
        if self._proxy.authenticates:
            try:
                identity = await self._identify(scope, dict(given))
            except AuthenticationError as error:
                return _page(401, str(error).encode())
        if is_passed_on(path):
            return await self._passed_on(scope, receive, given, identity)
        if path not in ("/metrics", "/proxy-stats") or scope["method"] not in ("GET", "HEAD"):
            return _page(404, b"no such page, or not with this method")
        if identity is not None and identity.role not in self._superusers:
            return _page(403, b"the figures of the proxy are for superusers")
        if path == "/metrics":
            return 200, [(b"content-type", CONTENT_TYPE.encode())], "".join(self._registry.scrape()).encode()
        return 200, [(b"content-type", b"application/json")], json.dumps(self._proxy.stats()).encode()

    async def _identify(self, scope: Scope, given: dict[str, str]) -> Identity:
        credentials = credentials_of(
            given.get("authorization", ""),
            given.get("x-pulsar-auth-method-name", ""),
            certificate_role=scope.get("state", {}).get(STATE_CERTIFICATE_ROLE),
            takes_certificates=self._takes_certificates,
        )
        client = scope.get("client") or ("?", 0)
        return await self._proxy.identify(credentials, f"{client[0]}:{client[1]}")

    async def _passed_on(
        self, scope: Scope, receive: Receive, given: list[tuple[str, str]], identity: Identity | None
    ) -> _Answer:
        address = (scope.get("client") or ("?", 0))[0]
        if not self._shares.enter(address):
            return _page(429, b"too many calls are in work at the proxy, or too many of this address")
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_S):
                refused = await self._read(receive, body)
            if refused is not None:
                return refused
            headers = to_broker(given, role=None if identity is None else identity.role, own=self._own)
            async with asyncio.timeout(_ANSWER_S):
                return await self._asked(scope, bytes(body), headers)
        except TimeoutError:
            return _page(504, b"the body, or the answer of a broker, did not come in time")
        finally:
            self._shares.leave(address, len(body))

    async def _read(self, receive: Receive, body: bytearray) -> _Answer | None:
        """Reads the body of a call into `body`; returns the answer when it is too large, or not whole."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                # Half of `3600` is a number too. The answer is for the log: its client is gone.
                return _page(400, b"the client has gone before the end of the body")
            piece = message.get("body", b"")
            body += piece
            if len(body) > BODY_BYTES_MAX:
                self._shares.take(len(piece))
                return _page(413, b"the body is too large")
            if not self._shares.take(len(piece)):
                return _page(429, b"too much of the bodies of calls is kept at the proxy; try again later")
            if not message.get("more_body"):
                return None

    @property
    def _own(self) -> str | None:
        """Authorization of the proxy at brokers."""
        return self.sockets.own_authorization()

    async def _asked(self, scope: Scope, body: bytes, headers: dict[str, str]) -> _Answer:
        """Asks a broker, another one if it is not reached, and those to which they redirect."""
        target = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        brokers = self._proxy.targets.web()
        reason = "no broker with an admin API is known to the proxy"
        for number in range(len(brokers)):
            broker = brokers[(self._next + number) % len(brokers)]
            url = url_at(broker, target, scope["query_string"])
            if url is None:
                return _page(400, b"the target of the request must begin with a slash")
            try:
                for _ in range(_REDIRECTS_MAX):
                    answer, told = await exchange_with_headers(
                        scope["method"], url, body, headers, tls=self._tls
                    )
                    if answer.status not in (307, 308):
                        self._next += 1
                        return answer.status, to_client(told), answer.body
                    url = redirected(answer.location, self._proxy.targets.web())
                    if url is None:
                        return _page(502, b"a broker redirects to an address that is none of the cluster's")
                return _page(502, b"brokers redirect too often")
            except ConnectionRefusedError as error:
                # It got nothing, so that another one may be asked.
                reason = str(error)
            except (OSError, ValueError) as error:
                _log.warning("%s %s: a broker did not answer: %s", scope["method"], target[:200], error)
                return _page(502, b"a broker did not answer")
        return _page(503, reason.encode())


def _page(status: int, text: bytes) -> _Answer:
    return status, [(b"content-type", b"application/json")], json.dumps({"reason": text.decode()}).encode()
