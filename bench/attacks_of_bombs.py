"""Decompression bombs of a tenant that may use its own namespace; told by `python -m bench hostile`.

The bombs are messages and batches of each compression, whose metadata announce their size truthfully or lie.
Everything in the broker that may decompress meets them: compaction, which is asked for again and again, a
subscription with a filter, a reader over a WebSocket, and messages shown over HTTP.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from bench import protobuf as pb
from bench.attacks_of_tenants import Line, sent
from bench.connection import Connection
from bench.neighbours import NAMESPACE, Count
from bench.scan import BrokerAnswerError
from magnetar.client.compression import compress
from magnetar.wire import pulsar_pb2

_TOPIC: Final = f"persistent://{NAMESPACE}/bombs"
_PATH: Final = _TOPIC.replace("://", "/")
_KINDS: Final = (
    pulsar_pb2.CompressionType.LZ4,
    pulsar_pb2.CompressionType.ZLIB,
    pulsar_pb2.CompressionType.ZSTD,
    pulsar_pb2.CompressionType.SNAPPY,
)
_ANNOUNCED: Final = (64 << 20, 1 << 20, 1_000)
"""The first is the truth, for as much as the broker decompresses at most."""
_BATCH: Final = 2
_PAUSE_S: Final = 0.05
"""The pace of each attacker: without it, failures would fill a core of the attacker, not of the broker."""
_DEADLINE_S: Final = 60.0


def payloads_of_each_kind() -> list[bytes]:
    """The same batch, compressed in each way."""
    half = (_ANNOUNCED[0] - 2 * 16) // _BATCH
    single = pb.field(2, "key") + pb.field(3, half)
    whole = len(single).to_bytes(4, "big") + single + bytes(half)
    plain = (whole * _BATCH).ljust(_ANNOUNCED[0], b"\0")
    return [compress(kind, plain) for kind in _KINDS]


def _metadata(name: str, kind: int, announced: int, *, batch: bool) -> bytes:
    fields = pb.field(1, name) + pb.field(2, 0) + pb.field(3, time.time_ns() // 1_000_000)
    fields += pb.field(8, kind) + pb.field(9, announced)
    return fields + (pb.field(11, _BATCH) if batch else pb.field(6, f"key-{kind}"))


def bombs(service_url: str, http_url: str, count: Count) -> None:
    """Publishes bombs; done counts those that the broker stored, refused those that it did not."""
    call(http_url, "PUT", f"/admin/v2/{_PATH}")
    call(http_url, "POST", f"/admin/v2/{_PATH}/entryFilters", {"entryFilterNames": "expression"})
    call(http_url, "PUT", f"/admin/v2/{_PATH}/subscription/filters", "earliest")
    call(
        http_url,
        "PUT",
        f"/admin/v2/{_PATH}/subscription/filters/properties",
        {"filter.expression": 'key == "wanted"'},
    )
    payloads = payloads_of_each_kind()
    kinds = itertools.cycle(itertools.product(range(len(_KINDS)), _ANNOUNCED, (True, False)))

    def publisher() -> None:
        while True:
            with contextlib.suppress(OSError, BrokerAnswerError):
                connection = Line(service_url, deadline_s=_DEADLINE_S)
                name = connection.open_producer(_TOPIC, 1)
                for number, announced, batch in kinds:
                    metadata = _metadata(name, _KINDS[number], announced, batch=batch)
                    connection.ask(
                        sent(metadata, payloads[number], 0, messages=_BATCH if batch else 1), 1, count
                    )

    def reader() -> None:
        connection = Connection(service_url)
        connection.subscribe(_TOPIC, "filters", durable=True, earliest=True)
        connection.flow(1_000_000)
        while connection.socket.recv(1 << 20):
            pass

    def compaction() -> None:
        call(http_url, "PUT", f"/admin/v2/{_PATH}/compaction")

    def shown() -> None:
        for position in range(1, 1 + len(_KINDS) * len(_ANNOUNCED) * 2):
            path = f"/admin/v2/{_PATH}/examinemessage?initialPosition=earliest&messagePosition={position}"
            call(http_url, "GET", path)

    works = (reader, compaction, shown, lambda: _read_over_websocket(http_url))
    for work in works:
        threading.Thread(target=_again_and_again, args=(work,), daemon=True).start()
    threading.Thread(target=publisher, daemon=True).start()
    count.say_for_ever()


def _again_and_again(work: Callable[[], None]) -> None:
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, BrokerAnswerError):
            work()
        time.sleep(_PAUSE_S)  # the pace of the attack


def _read_over_websocket(http_url: str) -> None:
    """Reads the topic from its beginning, and throws away what comes, until the broker ends it."""
    address = urlsplit(http_url)
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection((address.hostname or "", address.port or 0), _DEADLINE_S) as opened:
        opened.sendall(
            f"GET /ws/v2/reader/{_PATH}?messageId=earliest HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while opened.recv(1 << 20):
            pass


def call(http_url: str, method: str, path: str, body: object = None) -> int:
    """Calls the admin API; the status of the answer."""
    address = urlsplit(http_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_DEADLINE_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        while answer.read(1 << 20):
            pass
        return answer.status
    finally:
        connection.close()


ATTACKS: Final[dict[str, Callable[[str, str, Count], None]]] = {"bombs": bombs}
