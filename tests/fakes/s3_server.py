"""As much of S3's protocol as tiered storage uses, over HTTP, with faults when the test wants them.

Signatures are not looked at; real servers do that (tests/support/object_stores.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from support.http_threads import HttpThread

BUCKET = "history"

Fault = Callable[[str, str], str | None]
"""Asked with method and key before each answer: None, "500", "403", "cut" (half of the body, then the end of
the connection) or "gone" (the connection ends at once)."""


class FakeS3(HttpThread):
    """A server on a free port with one empty bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.turn = threading.Lock()
        """Held while an object is changed under a condition."""
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        """Method and path of each."""
        self.fault: Fault = lambda method, key: None
        fake = self

        class Handler(_Handler):
            s3 = fake

        super().__init__(Handler)

    @property
    def url(self) -> str:
        """For `offload_url`."""
        return f"s3://{BUCKET}/topics?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"


def _tag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:32]}"'


class _Handler(BaseHTTPRequestHandler):
    s3: FakeS3
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.s3.requests.append((self.command, self.path))
        fault = self.s3.fault(self.command, key)
        if fault == "gone":
            self.close_connection = True
            return
        if fault is not None and fault.isdigit():
            self._answer(int(fault), b"<Error><Code>Fault</Code></Error>")
            return
        status, answer, headers = self._do(key, query, body)
        self._answer(status, answer, headers, cut=fault == "cut")

    def __getattr__(self, name: str) -> Any:
        # The library looks for do_GET, do_PUT and so on.
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _do(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        s3 = self.s3
        if self.command == "GET" and not key:
            return 200, self._listing(query.get("prefix", "")), {"Content-Type": "application/xml"}
        if self.command == "POST" and "uploads" in query:
            upload = f"upload-{len(s3.uploads)}"
            s3.uploads[upload] = {}
            text = f"<R><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId></R>"
            return 200, text.encode(), {}
        if self.command == "PUT" and "partNumber" in query:
            s3.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": f'"{query["partNumber"]}"'}
        if self.command == "POST" and "uploadId" in query:
            pieces = s3.uploads.pop(query["uploadId"])
            s3.objects[key] = b"".join(pieces[number] for number in sorted(pieces))
            return 200, b'<R><ETag>"x"</ETag></R>', {}
        if self.command == "POST" and "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for deleted in keys:
                s3.objects.pop(unescape(deleted), None)
            rows = "".join(f"<Deleted><Key>{deleted}</Key></Deleted>" for deleted in keys)
            return 200, f"<DeleteResult>{rows}</DeleteResult>".encode(), {}
        if self.command == "PUT":
            with s3.turn:
                there = s3.objects.get(key)
                wanted, none = self.headers.get("if-match"), self.headers.get("if-none-match")
                if (none and there is not None) or (wanted and (there is None or wanted != _tag(there))):
                    return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
                s3.objects[key] = body
            return 200, b"", {"ETag": _tag(body)}
        if self.command == "DELETE":
            s3.uploads.pop(query.get("uploadId", ""), None)
            s3.objects.pop(key, None)
            return 204, b"", {}
        return self._object(key)

    def _object(self, key: str) -> tuple[int, bytes, dict[str, str]]:
        data = self.s3.objects.get(key)
        if data is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        headers = {"ETag": _tag(data), "Last-Modified": formatdate(1_700_000_000, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        if asked is None:
            return 200, data, headers
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first >= len(data):
            return 416, b"<Error><Code>InvalidRange</Code></Error>", {}
        return 206, data[first : last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}

    def _listing(self, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>x</ETag>"
            "<LastModified>2026-11-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.s3.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True
