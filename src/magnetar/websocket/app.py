"""The ASGI application at `/ws`: handles the handshake, the open socket and its end.

Every step that can fail runs before the handshake is answered, so that clients get an HTTP status. The socket
is authenticated by its handshake: the Authorization header, `?token=` for browsers, which cannot send
headers, or the client's certificate.

Source: ASGI 2.4, WebSocket; Pulsar's WebSocket API.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote

from magnetar.auth.errors import AuthenticationError
from magnetar.auth.http_credentials import credentials_of
from magnetar.auth.identity import METHOD_TLS, Credentials
from magnetar.base.asgi import Receive, Scope, Send
from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import pause, race, yield_loop
from magnetar.websocket import query_options as options
from magnetar.websocket.consuming import ConsumerSocket
from magnetar.websocket.endpoint import Endpoint, SocketEnd
from magnetar.websocket.errors import MessageError, RefusedByBrokerError, status_of
from magnetar.websocket.line import Line
from magnetar.websocket.lines import SocketLines
from magnetar.websocket.paths import SocketRole, Target, target_of
from magnetar.websocket.producing import ProducerSocket
from magnetar.websocket.share import Share
from magnetar.websocket.sockets import sockets_of

_log = logging.getLogger("magnetar.websocket")


ABORT: Final = "magnetar.abort"
"""Extension of a scope: called without arguments, it ends the connection and drops unsent bytes."""
GONE: Final = "magnetar.gone"
"""Extension of a scope: a coroutine function that returns when the client has disconnected, even if its last
bytes are not read."""
MORE: Final = "magnetar.more"
"""Key of a message `websocket.send`: whether further pieces of the same text follow."""
_LEFT_S: Final = 60.0
"""Seconds for which messages that a client sent before it left may still be handled."""
_TOLD_S: Final = 1.0
"""Seconds for sending the reason to a client whose socket must be closed to free memory."""
_REASON_BYTES_MAX: Final = 123
"""Bytes of a close frame's reason. Source: RFC 6455, 5.5."""


class WebSockets:
    """The ASGI application."""

    def __init__(self, broker: Broker, certificate_key: str) -> None:
        """`certificate_key`: key in a scope's state for the role in the client's certificate."""
        self.open = sockets_of(broker)
        self._broker = broker
        self._certificate_key = certificate_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one socket, from its handshake to its end."""
        connection = _Connection(scope, receive, send)
        try:
            endpoint = await self._opened(connection)
        except MagnetarError as error:
            self.open.refused += 1
            await refuse(send, status_of(error), str(error))
            return
        self.open.add(endpoint)
        try:
            await send({"type": "websocket.accept"})
            await _serve(endpoint, connection)
        except OSError:
            # The client is gone in the middle of an answer.
            return
        finally:
            self.open.remove(endpoint)
            await endpoint.close()

    async def _opened(self, connection: _Connection) -> Endpoint:
        await connection.receive()  # websocket.connect
        query = connection.query
        self.open.admit(connection.peer)
        target = target_of(connection.path, query, self._broker.config.cluster)
        endpoint = self._endpoint(target, query, connection.peer)
        certificate_role = connection.state.get(self._certificate_key)
        host, port = connection.server
        home = Line(
            self._broker,
            peer=connection.peer,
            local_host=host,
            port=port,
            certificate_role=certificate_role,
            hear=endpoint.hear,
            ended=endpoint.ended,
        )
        endpoint.lines = SocketLines(home, self.open.far, hear=endpoint.hear, lost=endpoint.lost)
        try:
            credentials = self._credentials(connection)
            original = connection.headers.get("x-original-principal", "")
            await endpoint.lines.connect(
                credentials,
                original,
                secure=connection.secure,
                certificate=credentials.method == METHOD_TLS,
            )
            endpoint.share = Share(self._broker, home.session)
            endpoint.share.admit()
            await endpoint.share.timing(endpoint.open())
        except BaseException:
            await endpoint.close()
            raise
        return endpoint

    def _credentials(self, connection: _Connection) -> Credentials:
        guard, headers = self._broker.guard, connection.headers
        if guard is None:
            return Credentials("")
        try:
            return credentials_of(
                headers.get("authorization", ""),
                headers.get("x-pulsar-auth-method-name", ""),
                token=connection.query.get("token", ""),
                certificate_role=connection.state.get(self._certificate_key),
                takes_certificates=METHOD_TLS in guard.authentication.providers,
            )
        except AuthenticationError as error:
            guard.refused_credentials(Credentials(""), connection.peer, error)
            raise

    def _endpoint(self, target: Target, query: Mapping[str, str], peer: str) -> Endpoint:
        if target.role is SocketRole.PRODUCER:
            made = options.producer_options(query)
            return ProducerSocket(self._broker, target, peer, self.open.memory, made)
        wanted = (options.reader_options if target.role is SocketRole.READER else options.consumer_options)(
            query
        )
        return ConsumerSocket(self._broker, target, peer, self.open.memory, wanted)


class _Connection:
    """The client's side of one socket."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        self.path = raw.decode("ascii", "replace") if raw else quote(scope["path"])
        self.query: dict[str, str] = {}
        for key, value in parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True):
            self.query.setdefault(key, value)
        self.headers = {
            key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]
        }
        client, server = scope.get("client"), scope.get("server")
        self.peer = f"{client[0]}:{client[1]}" if client else "?"
        self.server: tuple[str, int] = (server[0], server[1] or 0) if server else ("localhost", 0)
        self.secure = scope.get("scheme") == "wss"
        """Whether it came over TLS."""
        self.state: Mapping[str, str] = scope.get("state", {})
        self.receive = receive
        self._send = send
        extensions = scope.get("extensions", {})
        self._abort: Callable[[], None] = extensions.get(ABORT, lambda: None)
        self.gone: Callable[[], Coroutine[object, object, object]] = extensions.get(
            GONE, asyncio.Event().wait
        )

    async def text(self, text: str) -> None:
        """Sends a text; returns when the client can take more."""
        await self._send({"type": "websocket.send", "text": text})

    async def pieces(self, pieces: Iterable[str]) -> None:
        """Sends a text whose pieces are made when the client can take them."""
        for piece in pieces:
            await self._send({"type": "websocket.send", "text": piece, MORE: True})
            await yield_loop()
        await self._send({"type": "websocket.send", "text": "", MORE: False})

    async def close(self, code: int, reason: str) -> None:
        """Ends the socket."""
        cut = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        await self._send({"type": "websocket.close", "code": code, "reason": cut})

    async def drop(self, code: int, reason: str) -> None:
        """Closes the socket of a client that may not read, and drops its unsent texts."""
        try:
            async with asyncio.timeout(_TOLD_S):
                await self.close(code, reason)
        except (TimeoutError, OSError):  # a client that does not read cannot get the reason
            pass
        self._abort()


async def _serve(endpoint: Endpoint, connection: _Connection) -> None:
    reading, writing, overdue, _ = await race(
        _read(endpoint, connection), _write(endpoint, connection), endpoint.overdue(), _left(connection)
    )
    for task in (overdue, writing, reading):
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SocketEnd):
            _log.info("%s: closing a %s: %s", endpoint.peer, endpoint.target.role.value, error.reason)
            end = connection.drop if task is overdue else connection.close
            await end(error.code, error.reason)
            return
        if error is not None:
            raise error


async def _left(connection: _Connection) -> None:
    await connection.gone()
    await pause(_LEFT_S)


async def _read(endpoint: Endpoint, connection: _Connection) -> None:
    while True:
        await endpoint.lines.readable()
        await endpoint.share.rest()
        message = await connection.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if text is None:
            text = (message.get("bytes") or b"").decode("utf-8", "replace")
        endpoint.share.count()
        try:
            await endpoint.share.timing(endpoint.take(text))
        except MessageError as error:
            fault = error.fault
            raise SocketEnd(fault.close_code, f"{fault.text}: {error}") from error
        except RefusedByBrokerError as error:
            fault = error.fault
            raise SocketEnd(fault.close_code, f"{fault.text}: {error}") from error


async def _write(endpoint: Endpoint, connection: _Connection) -> None:
    await endpoint.share.timing(endpoint.write(_Rested(endpoint.share, connection)))


class _Rested:
    """An `Output` that waits while the role of its socket is over its share."""

    def __init__(self, share: Share, connection: _Connection) -> None:
        self._share = share
        self._connection = connection

    async def text(self, text: str) -> None:
        await self._rest()
        await self._connection.text(text)

    async def pieces(self, pieces: Iterable[str]) -> None:
        await self._rest()
        await self._connection.pieces(pieces)

    async def _rest(self) -> None:
        await self._share.rest()


async def refuse(send: Send, status: int, reason: str) -> None:
    """Answers a handshake with a status instead of a socket. Source: ASGI, websocket.http.response."""
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="magnetar"'))
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
