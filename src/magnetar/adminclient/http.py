"""Requests over one kept connection.

Redirects are followed with the same method and body (307), as brokers send callers to a topic's owner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from magnetar.adminclient import form as forms
from magnetar.adminclient.errors import AdminRefusedError, AdminTargetError, AdminUnreachableError
from magnetar.adminclient.target import AdminTarget
from magnetar.base.closing import Closing

if TYPE_CHECKING:
    import ssl

_REDIRECTS_MAX: Final = 5
_REDIRECTS: Final = (301, 302, 307, 308)
_TEXT_MAX: Final = 500
"""Most characters that are shown of an error's body that is not JSON."""


class Sent(NamedTuple):
    """A request with the arguments of `HTTPConnection.request`."""

    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> object:
        """The body: decoded JSON, else a text; None when it is empty."""
        text = self.body.decode("utf-8", "replace").strip()
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text


class AdminHttp(Closing):
    """Sends calls to one admin API. Not thread-safe."""

    def __init__(self, target: AdminTarget) -> None:
        """Connects nowhere yet. Raises AdminTargetError."""
        self.target = target
        self._home = target.parts()
        self._authorization = target.credentials()
        self._connections: dict[tuple[str, str], HTTPConnection] = {}

    def move(self, url: str) -> None:
        """Calls go there from now on. Raises AdminTargetError."""
        self.target = replace(self.target, url=url)
        self._home = self.target.parts()
        self.close()

    def close(self) -> None:
        """Ends the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def request(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, object] | None = None
    ) -> Answer:
        """Sends one call. `body` is sent as JSON; None: no body. Raises AdminRefusedError,
        AdminUnreachableError, and the errors of the target's `authorization`."""
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json", query=query)

    def send(self, method: str, path: str, form: forms.Form) -> Answer:
        """Sends one call with a multipart body. Raises as `request`."""
        data, content_type = forms.encode(form)
        return self._send(method, path, data, content_type)

    def _send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content_type: str,
        *,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        target = path
        if query:
            words = {
                key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()
            }
            target += f"?{urlencode(words)}"
        authorization = self._authorization()
        headers = {"Accept": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        if data is not None:
            headers["Content-Type"] = content_type
        at = self._home
        for _ in range(_REDIRECTS_MAX):
            answer = self._once(at, Sent(method, target, data, headers))
            location = answer.headers.get("location")
            if answer.status in _REDIRECTS and location:
                at, target = self._redirected(at, target, location)
                continue
            if answer.status >= 300:
                raise AdminRefusedError(method, path, answer.status, _reason(answer))
            return answer
        raise AdminRefusedError(method, path, 310, "redirected too often")

    def _once(self, at: SplitResult, sent: Sent) -> Answer:
        key = (at.scheme, at.netloc)
        if sent.method == "POST" and key in self._connections:
            # What may have been done must not be done twice, so that it is never tried again.
            self._connections.pop(key).close()
        # A kept connection may have been closed meanwhile; one that was never used may not.
        for kept in (True, False):
            connection = self._connections.get(key) if kept else None
            if connection is None and kept:
                continue
            try:
                if connection is None:
                    connection = self._connections[key] = self._connect(at)
                connection.request(*sent)
                response: HTTPResponse = connection.getresponse()
                body = response.read()
                found = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, found, body)
            except (OSError, HTTPException) as error:
                self._connections.pop(key, None)
                if connection is not None:
                    connection.close()
                if not kept or isinstance(error, TimeoutError):
                    raise self._unreachable(at, error) from error
        raise AssertionError("the loop returns or raises")

    def _connect(self, at: SplitResult) -> HTTPConnection:
        assert at.hostname is not None
        if at.scheme == "http":
            return HTTPConnection(at.hostname, at.port, timeout=self.target.timeout_s)
        # Imported here, so that only clients with TLS load it.
        from http.client import HTTPSConnection

        context = (self.target.tls_context or self._default_context)()
        return HTTPSConnection(at.hostname, at.port, timeout=self.target.timeout_s, context=context)

    def _default_context(self) -> ssl.SSLContext:
        import ssl

        try:
            return ssl.create_default_context(cafile=self.target.trust_certs)
        except OSError as error:
            raise AdminTargetError(
                f"{self.target.trust_certs}: {error}; {self.target.remedies.trust}"
            ) from error

    def _redirected(self, at: SplitResult, target: str, location: str) -> tuple[SplitResult, str]:
        there = urlsplit(urljoin(f"{at.scheme}://{at.netloc}{target}", location))
        if there.scheme not in ("http", "https") or (at.scheme == "https" and there.scheme != "https"):
            raise AdminTargetError(f"{self.target.url} redirects to {location}, which would show credentials")
        return there, there._replace(scheme="", netloc="", fragment="").geturl() or "/"

    def _unreachable(self, at: SplitResult, error: Exception) -> AdminUnreachableError:
        url, remedies = f"{at.scheme}://{at.netloc}", self.target.remedies
        if isinstance(error, TimeoutError):
            return AdminUnreachableError(
                url, f"no answer within {self.target.timeout_s:g} s", remedies.timeout
            )
        if type(error).__module__ == "ssl":
            return AdminUnreachableError(url, str(error), remedies.trust)
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return AdminUnreachableError(url, detail, remedies.address)


def _reason(answer: Answer) -> str:
    document = answer.document()
    if isinstance(document, dict):
        reason, remedy = str(document.get("reason", document)), document.get("remedy")
        return f"{reason.rstrip('.')}; {remedy}" if remedy else reason
    return "" if document is None else str(document)[:_TEXT_MAX]
