"""Publishes metrics as a file for a textfile collector, or over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from magnetar.observability.metrics import CONTENT_TYPE
from magnetar.runtime.threads import beside


def write_metrics(path: Path, text: str) -> None:
    """Replaces the file atomically, so that a reader never sees half of it. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)


class MetricsServer:
    """Answers GET /metrics on a thread of its own."""

    def __init__(self, port: int, render: Callable[[], str]) -> None:
        """Listens on loopback; port 0 chooses one. Raises OSError."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # http.server's name
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "there is /metrics")
                    return
                body = render().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Scrapes are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = beside(self._server.serve_forever, name="metrics")

    def close(self) -> None:
        """Stops the server, and returns when its thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
