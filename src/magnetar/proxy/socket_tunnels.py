"""WebSockets through the proxy (driver): any broker serves a WebSocket, whichever broker has its topic.

The handshake is authenticated here like a call, and written anew for a broker that the proxy knows. The
broker's answer is read; only after `101` are bytes passed on in both directions. Until then the client sends
nothing: what it sent after a refused handshake would reach the broker as a request that the proxy never saw.

Source: RFC 6455, 4.1 and 4.2 (handshake).
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

from magnetar.admin.access.access import STATE_CERTIFICATE_ROLE
from magnetar.auth.errors import AuthenticationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_TLS, METHOD_TOKEN, Identity
from magnetar.proxy.handshakes import Handshake, answer_in, handshake_of
from magnetar.proxy.http_rules import to_broker, url_at
from magnetar.proxy.proxy import Proxy
from magnetar.runtime.tasks import call_later

_log = logging.getLogger("magnetar.proxy")

_HANDSHAKE_S: Final = 60.0
"""Seconds for a broker's answer to a handshake."""
_ANSWER_BYTES_MAX: Final = 64 << 10
"""Bytes of a broker's answer to a handshake, with the reason of a refusal."""
_LAST_WORDS_S: Final = 10.0
"""Seconds for a peer to take the last bytes of a connection that is closed."""


class HandshakeEnd(Exception):  # noqa: N818  # no error: how a handshake ends
    """The handshake is answered with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SocketTunnels:
    """The WebSockets of one port. uvicorn calls it for the protocol of each upgrade."""

    def __init__(self, proxy: Proxy, *, tls: ssl.SSLContext | None, takes_certificates: bool) -> None:
        """`tls`: for connections to brokers. `takes_certificates`: see `ProxyApp`."""
        self.proxy = proxy
        self.tls = tls
        self._takes_certificates = takes_certificates
        self._next = 0

    def __call__(
        self, config: object, server_state: object, app_state: Mapping[str, object]
    ) -> asyncio.Protocol:
        role = app_state.get(STATE_CERTIFICATE_ROLE)
        return SocketTunnel(self, role if isinstance(role, str) else None)

    async def identify(self, asked: Handshake, certificate_role: str | None, peer: str) -> Identity | None:
        """What the client proves here; None when the proxy does not authenticate clients."""
        if not self.proxy.authenticates:
            return None
        try:
            credentials = credentials_of(
                asked.headers.get("authorization", ""),
                asked.headers.get("x-pulsar-auth-method-name", ""),
                certificate_role=certificate_role,
                takes_certificates=self._takes_certificates,
                token=dict(parse_qsl(asked.query)).get("token", ""),
            )
            return await self.proxy.identify(credentials, peer)
        except AuthenticationError as error:
            raise HandshakeEnd(HTTPStatus.UNAUTHORIZED, str(error)) from error

    def own_authorization(self) -> str | None:
        """Authorization of the proxy at brokers."""
        own = self.proxy.credentials
        if own is None or own.method == METHOD_TLS:
            return None
        assert own.method == METHOD_TOKEN, "the settings offer no other"
        return f"Bearer {own.data.decode()}"

    def brokers(self) -> list[str]:
        """URLs of brokers to ask, each in turn first."""
        known = self.proxy.targets.web()
        self._next += 1
        return [known[(self._next + number) % len(known)] for number in range(len(known))]


class _Half(asyncio.Protocol):
    """One socket of a pair; it passes on what it reads once it has another one."""

    transport: asyncio.Transport

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._other: _Half | None = None
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods but not its classes.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self._proxy.options.buffer_bytes)

    def join(self, other: _Half, rest: bytes) -> None:
        """What is read from now on goes to the other one, `rest` first."""
        self._other = other
        if rest:
            other.transport.write(rest)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self.early(data)
            return
        figures = self._proxy.figures
        figures.ops += 1
        figures.bytes += len(data)
        self._other.transport.write(data)

    def early(self, data: bytes) -> None:
        """Takes what comes before the sockets are a pair."""

    def pause_writing(self) -> None:
        other = self._other
        if other is not None and not other.transport.is_closing() and other.transport.is_reading():
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        other = self._other
        if other is not None and not other.transport.is_closing() and not other.transport.is_reading():
            other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        other, self._other = self._other, None
        if other is not None:
            other.finish()

    def finish(self) -> None:
        """Closes the socket when what was written has left, or after some seconds in any case."""
        if not self.gone and hasattr(self, "transport"):
            self.transport.close()
            call_later(_LAST_WORDS_S, self.transport.abort)


class _BrokerSide(_Half):
    """The socket to a broker."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy)
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        """Status and bytes of the broker's answer, as far as they were read."""
        self._head = bytearray()

    def early(self, data: bytes) -> None:
        self._head += data
        if self.answer.done():
            return
        found = answer_in(bytes(self._head))
        if found is not None:
            # What follows belongs to the WebSocket: it is passed on in the turn of `join`.
            self.transport.pause_reading()
            self.answer.set_result((found, bytes(self._head)))
        elif len(self._head) > _ANSWER_BYTES_MAX:
            self.answer.set_exception(ConnectionError("its answer is too large"))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.answer.done():
            self.answer.set_exception(ConnectionError("it ended the connection before its answer"))


class SocketTunnel(_Half):
    """One WebSocket: its client's side."""

    def __init__(self, tunnels: SocketTunnels, certificate_role: str | None) -> None:
        super().__init__(tunnels.proxy)
        self.identity: Identity | None = None
        """What the client has proven here; None: nothing yet, or clients are not authenticated here."""
        self._tunnels = tunnels
        self._certificate_role = certificate_role
        self._begun = False
        self._counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.sockets.add(self)

    def early(self, data: bytes) -> None:
        if self._begun:
            # Its client must wait for the answer.
            self.transport.abort()
            return
        self._begun = True
        self.transport.pause_reading()
        self._proxy.tasks.spawn(self._open(data))

    async def _open(self, head: bytes) -> None:
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                await self._opened(head)
        except HandshakeEnd as error:
            self._refuse(error.status, str(error))
        except TimeoutError:
            self._refuse(HTTPStatus.GATEWAY_TIMEOUT, "a broker did not answer in time")

    async def _opened(self, head: bytes) -> None:
        try:
            asked = handshake_of(head)
        except ValueError as error:
            raise HandshakeEnd(HTTPStatus.BAD_REQUEST, str(error)) from error
        if not asked.path.startswith("/ws/"):
            raise HandshakeEnd(HTTPStatus.NOT_FOUND, "no WebSocket is served here")
        if not self._proxy.authenticates and not asked.is_of_same_origin:
            raise HandshakeEnd(HTTPStatus.FORBIDDEN, "a page of elsewhere may open no WebSocket here")
        peer = self.transport.get_extra_info("peername") or ("?", 0)
        self.identity = await self._tunnels.identify(asked, self._certificate_role, f"{peer[0]}:{peer[1]}")
        if not self._proxy.take_link():
            raise HandshakeEnd(
                HTTPStatus.SERVICE_UNAVAILABLE, "the proxy has no socket left for connections to brokers"
            )
        self._counted = True
        broker = await self._connected(asked)
        try:
            status, answer = await broker.answer
        except ConnectionError as error:
            raise HandshakeEnd(HTTPStatus.BAD_GATEWAY, f"a broker did not answer: {error}") from error
        except BaseException:
            broker.finish()
            raise
        if status != HTTPStatus.SWITCHING_PROTOCOLS:
            broker.finish()
            raise HandshakeEnd(status, _reason_in(answer))
        if self.gone:
            broker.finish()
            return
        self._proxy.figures.spliced += 1
        broker.join(self, answer)
        self.join(broker, b"")
        broker.transport.resume_reading()
        self.transport.resume_reading()

    async def _connected(self, asked: Handshake) -> _BrokerSide:
        """The socket to a broker, which got the handshake."""
        role = None if self.identity is None else self.identity.role
        headers = to_broker(asked.headers.items(), role=role, own=self._tunnels.own_authorization())
        loop, reason = asyncio.get_running_loop(), "no broker with an admin API is known to the proxy"
        for base in self._tunnels.brokers():
            query = asked.query if role is None else asked.query_without_token
            url = url_at(base, asked.target, query.encode("latin-1"))
            if url is None:
                raise HandshakeEnd(HTTPStatus.BAD_REQUEST, "the target must begin with a slash")
            at = urlsplit(url)
            tls = self._tunnels.tls if at.scheme == "https" else None
            broker = _BrokerSide(self._proxy)
            try:
                await loop.create_connection(
                    partial(_itself, broker), at.hostname or "", at.port or (443 if tls else 80), ssl=tls
                )
            except OSError as error:
                reason = f"a broker cannot be reached: {error}"
                continue
            target = at.path + (f"?{at.query}" if at.query else "")
            broker.transport.write(asked.written_anew(target, at.netloc, headers))
            return broker
        raise HandshakeEnd(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _refuse(self, status: int, reason: str) -> None:
        if self.gone:
            return
        body = json.dumps({"reason": reason}).encode()
        phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else "refused"
        head = (
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        )
        if status == HTTPStatus.UNAUTHORIZED:
            head += 'www-authenticate: Bearer realm="magnetar"\r\n'
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.finish()

    def close(self) -> None:
        """Ends the WebSocket on both sides."""
        other = self._other
        self.finish()
        if other is not None:
            other.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._proxy.sockets.discard(self)
        if self._counted:
            self._counted = False
            self._proxy.give_link_back()


def _itself(side: _BrokerSide) -> _BrokerSide:
    return side


def _reason_in(answer: bytes) -> str:
    """What a broker says in the body of a refusal, as far as it was read."""
    body = answer.partition(b"\r\n\r\n")[2]
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    found = document.get("reason") if isinstance(document, dict) else None
    return str(found or "a broker refused the handshake")
