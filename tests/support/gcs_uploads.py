"""Uploads of Google's XML interface for fake-gcs-server, which knows those of the JSON one alone.

A proxy before it: what reads, lists and deletes goes through as it is; an upload, whole or in parts, becomes
one of the JSON interface.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

_DEADLINE_S: Final = 30


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.numbers = itertools.count(1)
        self.parts: dict[str, dict[int, bytes]] = {}
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _pass(self, method: str, path: str, body: bytes = b"") -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.behind, timeout=_DEADLINE_S)
        names = ("range", "content-type", "authorization")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), None)
        head = self.command == "HEAD" and length is not None
        self.send_header("Content-Length", str(length) if head else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _through(self) -> None:
        self._answer(*self._pass(self.command, self.path))

    def do_GET(self) -> None:
        self._through()

    def do_HEAD(self) -> None:
        self._through()

    def do_DELETE(self) -> None:
        upload = self._upload()
        if upload:
            self.server.parts.pop(upload, None)
            self._answer(204, [], b"")
        else:
            self._through()

    def do_PUT(self) -> None:
        body, upload = self._body(), self._upload()
        if upload:
            number = int(parse_qs(urlsplit(self.path).query)["partNumber"][0])
            self.server.parts[upload][number] = body
            self._answer(200, [("ETag", f'"{number}"')], b"")
        else:
            self._store(body, b"")

    def do_POST(self) -> None:
        body, upload = self._body(), self._upload()
        if upload:
            parts = self.server.parts.pop(upload)
            whole = b"".join(parts[number] for number in sorted(parts))
            self._store(
                whole, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
            )
        elif urlsplit(self.path).query.startswith("uploads"):
            upload = f"upload-{next(self.server.numbers)}"
            self.server.parts[upload] = {}
            begun = "InitiateMultipartUploadResult"
            self._answer(200, [], f"<{begun}><UploadId>{upload}</UploadId></{begun}>".encode())
        else:
            self._answer(*self._pass("POST", self.path, body))

    def _upload(self) -> str:
        return parse_qs(urlsplit(self.path).query).get("uploadId", [""])[0]

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _store(self, body: bytes, answer: bytes) -> None:
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
        status, _, said = self._pass("POST", target, body)
        self._answer(status, [("ETag", '"e"')], answer if status == 200 else said)


@contextmanager
def uploads_for(port: int) -> Iterator[int]:
    """The port of a proxy before the server at `port`."""
    proxy = _Proxy(port)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy.server_address[1]
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
