"""The ASGI application: calls the handler of a request, and answers with its result or error.

Paths are matched before percent-decoding, so that an encoded slash in the name of a subscription does not
become a separator; variables are decoded afterwards.

Rights: see `access.py`. Without authentication two kinds of requests are refused, which any web page could
have a browser on this machine send. A request that changes something and carries an `Origin` other than the
address it was sent to (a page that posts to localhost); and, while only this machine can reach the port, a
`Host` that is not a name of this machine (a page whose own name was made to resolve to here).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.admin.access import access
from magnetar.admin.calls.call import (
    BODY_BYTES_MAX,
    Call,
    Handler,
    Operation,
    Raw,
    Route,
    Service,
    StoredBody,
    Streamed,
    Text,
    as_json,
    decoded,
)
from magnetar.admin.calls.call_places import PROBES
from magnetar.admin.calls.compression import BYTES_MIN, compressing, wants_gzip
from magnetar.admin.calls.errors import (
    ServedElsewhereError,
    TooLargeError,
    TooMuchUsedError,
    TooSlowError,
    status_of,
    words_of,
)
from magnetar.admin.calls.paths import PathTree
from magnetar.admin.calls.sources import check_request, host_of
from magnetar.admin.serving import elsewhere
from magnetar.admin.serving.first_generation import present_path
from magnetar.admin.serving.streaming import send_streamed
from magnetar.base.errors import MagnetarError
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import yield_loop
from magnetar.runtime.threads import in_thread
from magnetar.sql.serving.serving_errors import QueriesBusyError

_log = logging.getLogger("magnetar.admin")

BODY_S: Final = 30.0
"""Seconds for the arrival of a body, or of the next piece of an upload."""
UPLOAD_S: Final = 900.0
"""Seconds for the arrival of an upload."""

_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="magnetar"'}
"""Header of every 401. Source: RFC 9110, 11.6.1."""

_AMBIGUOUS: Final = frozenset((b"content-length", b"transfer-encoding"))
_PIECE_BYTES: Final = 256 << 10
"""Bytes of an answer that are written at a time."""
_CLOSE: Final = {"Connection": "close"}
_ONE_LENGTH: Final = "send Content-Length or Transfer-Encoding, not both"
"""Refusal of two lengths: a proxy that reads one header and a server that reads the other would see different
requests (request smuggling). Source: RFC 9112, 6.3."""


def build(broker: Broker, service: Service, routes: list[Route], sockets: ASGIApp | None = None) -> ASGIApp:
    """The application. `routes` may come in any order: literal parts of paths win over variables; `sockets`
    serves WebSockets."""
    methods: dict[str, dict[str, Handler]] = {}
    for method, path, handler in routes:
        known = methods.setdefault(path, {})
        assert method not in known, f"{method} {path} is routed twice"
        known[method] = handler
    resources: PathTree[_Resource] = PathTree()
    for path, known in methods.items():
        resources.add(path, _Resource(broker, service, path, known))
    return _Application(resources, sockets, broker.config.cluster)


class _Application:
    """Everything around routing."""

    def __init__(self, resources: PathTree[_Resource], sockets: ASGIApp | None, cluster: str) -> None:
        self._resources = resources
        self._cluster = cluster
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and self._sockets is not None:
            await self._sockets(scope, receive, send)
            return
        assert scope["type"] == "http"
        if {name for name, _ in scope["headers"]} >= _AMBIGUOUS:
            await _refusal(400, "a body has one length", _CLOSE, remedy=_ONE_LENGTH)(scope, receive, send)
            return
        raw = scope.get("raw_path")
        path = raw.decode("ascii", "replace") if raw else quote(scope["path"])
        scope = {**scope, "app": self, "path": path.rstrip("/") or "/", "root_path": ""}
        found = self._resources.find(scope["path"])
        if found is None:
            scope["path"] = present_path(scope["path"], self._cluster)
            found = self._resources.find(scope["path"])
        try:
            if found is None:
                raise HTTPException(404)
            resource, scope["path_params"] = found
            await resource(scope, receive, send)
        except HTTPException as error:
            reason = "no such path" if error.status_code == 404 else str(error.detail)
            await _refusal(error.status_code, f"{scope['method']} {path}: {reason}", error.headers)(
                scope, receive, send
            )


class _Resource:
    """All methods of one path."""

    def __init__(self, broker: Broker, service: Service, path: str, methods: dict[str, Handler]) -> None:
        self._broker = broker
        self._service = service
        self._methods = methods
        self._path = path
        self._is_probe = path in PROBES
        self._allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        handler = self._methods.get(method) or self._methods.get("*")
        if handler is None:
            raise HTTPException(405, "method not allowed", {"Allow": self._allow})
        request = Request(scope, receive)
        try:
            response = await self._respond(handler, request)
        except ClientDisconnect:  # the client has disconnected: there is no answer
            return
        if isinstance(response, Streamed):
            await send_streamed(response, scope, receive, send)
            return
        await _compress(response, request)
        await _sent(response, send)

    async def _respond(self, handler: Handler, request: Request) -> Response | Streamed:
        try:
            check_request(request, self._service, changes=request.method not in access.READING)
            params = decoded(request.path_params)
            guard, identity = self._broker.guard, None
            if guard is not None:
                # Before the body is read: unauthenticated clients must not fill the memory.
                identity = await access.admit(guard, access.need(request.method, self._path), request, params)
            owner = identity.role if identity is not None else access.address_of(request)
            self._check_quota(owner)
            if self._broker.owners is not None:
                url = await elsewhere.url_of(self._broker, self._path, params, request)
                if url is not None:
                    return Response(status_code=307, headers={"Location": url})
            uploads = isinstance(handler, Operation) and handler.upload is not None
            call = Call(
                broker=self._broker,
                service=self._service,
                path=self._path,
                params=params,
                query=request.query_params,
                headers=request.headers,
                body=b"" if uploads else await _body(request),
                pieces=_pieces(request) if uploads else None,
                host=host_of(request),
                peer=access.peer_of(request),
                identity=identity,
                secure=request.url.scheme == "https",
                receive=request.receive,
            )
            answer = await self._broker.quotas.timing(owner, _answered(handler, call))
            access.note_change(identity, request, call.body)
            return answer
        except ServedElsewhereError as error:
            return Response(
                status_code=307, headers={"Location": str(elsewhere.location(error.place, request))}
            )
        except MagnetarError as error:
            status = status_of(error)
            if status >= 500 and status != 501:
                _log.warning("%s %s: %s", request.method, request.url.path, error)
            reason, remedy = words_of(error, self._path)
            return _refusal(status, reason, _headers(error, status), remedy=remedy)
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001  # a bug met by one call is answered and must not stop others
            _log.exception("%s %s failed", request.method, request.url.path)
            return _refusal(500, "internal error; the broker's log has the details")

    def _check_quota(self, owner: str) -> None:
        quotas = self._broker.quotas
        if self._is_probe:
            return
        if rest_ms := quotas.count(owner, 0):
            raise TooMuchUsedError(owner, rest_ms)
        quotas.count(owner, 1)


def _headers(error: MagnetarError, status: int) -> dict[str, str] | None:
    if isinstance(error, TooMuchUsedError | QueriesBusyError):
        return {"Retry-After": str(error.rest_s)}
    return _CHALLENGE if status == 401 else None


async def _answered(handler: Handler, call: Call) -> Response | Streamed:
    return _answer(await handler(call))


def _answer(result: object) -> Response | Streamed:
    if isinstance(result, Streamed):
        return result
    if result is None:
        return Response(status_code=204)
    if isinstance(result, Text):
        return Response(result.encode(), media_type="text/plain")
    if isinstance(result, Raw):
        return Response(
            result.body, result.status, headers=dict(result.headers), media_type=result.content_type
        )
    if isinstance(result, StoredBody):
        return _FileResponse(result)
    return Response(_encoded(result), media_type="application/json")


class _FileResponse(Response):
    """An answer whose body is read from a file while it is sent."""

    def __init__(self, stored: StoredBody) -> None:
        super().__init__(
            b"", headers={"Content-Length": str(stored.size)}, media_type="application/octet-stream"
        )
        self.stored = stored


async def _sent_file(stored: StoredBody, send: Send) -> None:
    left = stored.size
    with stored.path.open("rb") as file:
        while left:
            piece = await in_thread(file.read, min(left, _PIECE_BYTES))
            left -= len(piece)
            if not piece:
                raise OSError(f"{stored.path} has become shorter")
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
    if not stored.size:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(response: Response, send: Send) -> None:
    """Sends an answer. A large body goes in pieces, as the client takes them: one write of 64 MiB is copied,
    and no other client is served meanwhile."""
    await send(
        {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    if isinstance(response, _FileResponse):
        await _sent_file(response.stored, send)
        return
    body = response.body
    for at in range(0, max(1, len(body)), _PIECE_BYTES):
        piece = bytes(body[at : at + _PIECE_BYTES]) if len(body) > _PIECE_BYTES else bytes(body)
        more = at + _PIECE_BYTES < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})
        if more:
            # A client that reads fast never makes `send` wait.
            await yield_loop()


async def _compress(response: Response, request: Request) -> None:
    if len(response.body) < BYTES_MIN or not wants_gzip(request.headers.get("accept-encoding", "")):
        return
    pieces = []
    for piece in compressing(response.body):
        pieces.append(piece)
        await yield_loop()
    response.body = b"".join(pieces)
    response.headers["content-length"] = str(len(response.body))
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"


def _refusal(status: int, reason: str, headers: object = None, *, remedy: str = "") -> Response:
    extra = headers if isinstance(headers, dict) else None
    document = {"reason": reason, "remedy": remedy} if remedy else {"reason": reason}
    return Response(_encoded(document), status, headers=extra, media_type="application/json")


def _encoded(document: object) -> bytes:
    return as_json(document).encode()


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise TooLargeError(f"the body is larger than {BODY_BYTES_MAX} bytes")
                parts.append(part)
    except TimeoutError as error:
        raise TooSlowError(f"the body did not arrive within {BODY_S:g} s") from error
    return b"".join(parts)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """An upload as it arrives. Raises TooSlowError."""
    stream, loop = request.stream(), asyncio.get_running_loop()
    ends_s = loop.time() + UPLOAD_S
    while True:
        try:
            async with asyncio.timeout(min(BODY_S, ends_s - loop.time())):
                piece = await anext(stream)
        except StopAsyncIteration:
            return  # The body has ended.
        except TimeoutError as error:
            raise TooSlowError(
                f"the upload paused for {BODY_S:g} s, or took more than {UPLOAD_S:g} s"
            ) from error
        yield piece
