"""An admin API that answers as it is told, on a port of its own, and remembers what it was asked."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from support.http_threads import HttpThread


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class FakeAdminServer(HttpThread):
    """`answers` maps "METHOD /path" to a document, or to (status, document, headers); others are 404."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[Asked] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                fake.handle(self)

            def log_message(self, *args: Any) -> None: ...

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        size = int(request.headers.get("content-length", 0))
        text = request.rfile.read(size)
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.command, request.path, _read(text, headers), headers)
        self.asked.append(asked)
        missing = (404, {"reason": f"nothing is at {request.path}"}, {})
        found = self.answers.get(f"{asked.method} {asked.path}", missing)
        status, document, more = found if isinstance(found, tuple) else (200, found, {})
        body = b"" if document is None else json.dumps(document).encode()
        request.send_response(204 if not body and status == 200 else status)
        request.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)


def _read(text: bytes, headers: dict[str, str]) -> Any:
    """JSON, or the bytes of another body."""
    if not text:
        return None
    return json.loads(text) if headers.get("content-type", "").startswith("application/json") else text
