"""`./dev fuzz live`: hostile clients at a broker that runs, while one that behaves is watched.

Each round opens a connection, of the binary protocol, of HTTP or of a WebSocket, and says what chance makes
of the protocol: commands with fields of every size, requests of all routes, frames; some of it damaged. It is
a finding when the broker ends, when a traceback is in its log, when its memory grows beyond a bound, when one
turn of its event loop takes too much of a processor, or when the message of the client that behaves does not
come.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fuzzing.catalogue import ROOT
from fuzzing.grammar import Choices, document
from magnetar.base.ids import ProducerId
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import encode_command
from magnetar.wire.payload import build_batch
from magnetar.wire.sends import encode_send

NAME: Final = "live"
_LINES: Final = 4
"""Hostile clients at a time."""
_CHOICES: Final = 800
"""Bytes of chance for what one connection says."""
_PATIENCE_S: Final = 20.0
"""For the message of the client that behaves, on a machine whose cores are all taken."""
_TURN_MS_MAX: Final = 60.0
"""Most milliseconds of CPU of one turn of the event loop."""
_GROWTH_MB_MAX: Final = 400.0
_TOPICS: Final = (
    *(
        "persistent://public/default/f-1",
        "persistent://public/default/f-2",
        "non-persistent://public/default/f-3",
    ),
    *(
        "persistent://public/default/f-4-partition-0",
        "f-5",
        "persistent://a/b/c",
        "persistent://public/default/../x",
    ),
    *(
        "",
        "persistent://public/default/" + "n" * 5_000,
        "public/default",
        "é\0",
        "persistent://public/default/__x",
    ),
)
_NAMES: Final = ("s", "s2", "", "é", "n" * 2_000, "a/b", "%2F", "\0", "__compaction")
_KINDS: Final = tuple(
    number
    for number in pb.BaseCommand.Type.values()
    if number not in (pb.BaseCommand.CONNECT, pb.BaseCommand.SEND)
)
_SMALL_IDS: Final = ("producer_id", "consumer_id", "request_id", "watcher_id", "ledgerId", "entryId")


def _fill(message: Message, choices: Choices, depth: int = 3) -> None:
    """Fields by chance; required ones nearly always."""
    for field in message.DESCRIPTOR.fields:
        required = field.is_required
        if not (choices.below(20) if required else choices.below(3) == 0 and depth):
            continue
        if field.is_repeated:
            with contextlib.suppress(ValueError, TypeError):
                for _ in range(choices.below(4)):
                    if field.message_type is None:
                        getattr(message, field.name).append(_value(field, choices))
                    else:
                        _fill(getattr(message, field.name).add(), choices, depth - 1)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, choices, depth - 1)
        else:
            with contextlib.suppress(ValueError, TypeError):
                setattr(message, field.name, _value(field, choices))


def _value(field: Any, choices: Choices) -> object:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        return choices.one(_TOPICS) if field.name in ("topic", "original_topic") else choices.one(_NAMES)
    if field.type == kinds.TYPE_BYTES:
        return document(choices.avro(3)) if choices.below(2) else choices.some(30)
    if field.type == kinds.TYPE_BOOL:
        return bool(choices.below(2))
    if field.enum_type is not None:
        return choices.one(field.enum_type.values).number
    if field.name in _SMALL_IDS and choices.below(5):
        return choices.below(4)
    number = choices.number()
    if field.type in (kinds.TYPE_UINT64, kinds.TYPE_FIXED64):
        return number % (1 << 64)
    if field.type == kinds.TYPE_UINT32:
        return number % (1 << 32)
    if field.type == kinds.TYPE_INT32:
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _command(choices: Choices) -> bytes:
    if choices.below(4) == 0:
        return _send(choices)
    kind = choices.one(_KINDS)
    command = pb.BaseCommand(type=kind)  # type: ignore[arg-type]  # one of the enum's numbers
    body = getattr(command, command.DESCRIPTOR.fields_by_number[kind].name)
    body.SetInParent()
    _fill(body, choices)
    data = command.SerializePartialToString()
    return choices.damaged((len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)


def _send(choices: Choices) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    _fill(metadata, choices, 1)
    metadata.producer_name, metadata.publish_time = "p", 1
    payload = choices.some(60)
    if choices.below(2):
        payload = build_batch(
            (pb.SingleMessageMetadata(partition_key="k"), b"x") for _ in range(choices.below(4))
        )
        metadata.num_messages_in_batch = choices.one((1, 2, 3, -1, 1 << 30))
    head = metadata.SerializePartialToString()
    checked = len(head).to_bytes(4, "big") + head + payload
    entry = b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked
    count = abs(choices.number()) % (1 << 31) or 1
    return choices.damaged(encode_send(ProducerId(choices.below(3)), choices.below(200), count, entry))


_CONNECT: Final = encode_command(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="fuzz", protocol_version=21)
    )
)


def _subscribed() -> bytes:
    """A producer and a consumer, so that what follows finds some."""
    producer = pb.CommandProducer(topic=_TOPICS[0], producer_id=1, request_id=1)
    subscribe = pb.CommandSubscribe(
        topic=_TOPICS[0], subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
    )
    flow = pb.CommandFlow(consumer_id=1, messagePermits=100)
    return b"".join(
        (
            encode_command(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)),
            encode_command(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe)),
            encode_command(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=flow)),
        )
    )


def _binary(choices: Choices) -> tuple[bytes, int]:
    said = [choices.damaged(_CONNECT), _subscribed() if choices.below(2) else b""]
    commands = 1 + choices.below(12)
    return b"".join((*said, *(_command(choices) for _ in range(commands)))), commands + 1


def _path(route: str, choices: Choices) -> str:
    pieces = []
    for piece in route.split("/"):
        if piece.startswith("{"):
            known = {"{tenant}": "public", "{namespace}": "default", "{topic}": "f-1"}.get(piece, "s")
            piece = known if choices.below(3) else quote(choices.one((*_NAMES, "..", "a b", "f-2")), safe="")
        pieces.append(piece)
    return "/".join(pieces)


def _request(choices: Choices, routes: list[tuple[str, str]]) -> bytes:
    method, route = choices.one(routes) if choices.below(2) else routes[choices.below(256) * 7 % len(routes)]
    body = choices.damaged(document(choices.json())) if choices.below(3) else choices.some(30)
    head = (
        f"{method} {_path(route, choices)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    return choices.damaged(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("utf-8", "replace") + body)


def _websocket(choices: Choices) -> tuple[bytes, int]:
    role = choices.one(("producer", "consumer", "reader"))
    topic = choices.one(
        ("persistent/public/default/f-1", "persistent/public/default/f-2", "persistent/a/b/c", "x")
    )
    path = f"/ws/v2/{role}/{topic}" + ("/s" if role == "consumer" else "")
    query = choices.one(("", "?receiverQueueSize=1", "?messageId=earliest", "?ackTimeoutMillis=-1", "?x=%00"))
    key = base64.b64encode(os.urandom(16)).decode()
    said = [
        f"GET {path}{query} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    ]
    frames = 1 + choices.below(20)
    for _ in range(frames):
        keys = ("payload", "properties", "context", "messageId", "type", "permitMessages", "key")
        body = document({choices.one(keys): choices.json(2) for _ in range(choices.below(4))})
        text = choices.damaged(body)[:125]
        opcode = choices.one((0x81, 0x81, 0x81, 0x82, 0x89, 0x8A, 0x01, 0x80, 0x88, 0xF1))
        said.append(bytes((opcode, 0x80 | len(text))) + bytes(4) + text)
    return choices.damaged(b"".join(said)), frames + 1


class _Hostile:
    """Clients that say what chance makes of the protocols."""

    def __init__(self, service_url: str, http_url: str, seed: int) -> None:
        self._binary_at, self._http_at = urlsplit(service_url), urlsplit(http_url)
        self._seed = seed
        with urllib.request.urlopen(f"{http_url}/openapi.json", timeout=60) as answer:
            paths = json.load(answer)["paths"]
        self._routes = [(method.upper(), path) for path, known in paths.items() for method in known]
        # What only an operator may change is not for tenants: settings, brokers, clusters.
        self._routes = [
            (method, path) for method, path in self._routes if method == "GET" or "{tenant}" in path
        ]
        self.done = 0
        self.stop = False
        self._lock = threading.Lock()

    def work(self, line: int) -> None:
        """Until `stop`."""
        chance = random.Random(f"{self._seed}-{line}")
        while not self.stop:
            choices = Choices(chance.randbytes(_CHOICES))
            kind = choices.below(4)
            if kind < 2:
                data, count = _binary(choices)
            elif kind == 2:
                count = 1 + choices.below(4)
                data = b"".join(_request(choices, self._routes) for _ in range(count))
            else:
                data, count = _websocket(choices)
            with contextlib.suppress(OSError):
                self._say(self._binary_at if kind < 2 else self._http_at, data)
                with self._lock:
                    self.done += count

    def _say(self, address: Any, data: bytes) -> None:
        with socket.create_connection((address.hostname, address.port), 10) as one:
            one.sendall(data)
            one.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                while one.recv(1 << 16):
                    pass


def run(seconds: float, seed: int) -> dict[str, Any]:
    """What came of it, as of a harness."""
    sys.path.insert(0, str(ROOT))
    from bench import steps
    from bench.broker import Cpus, started
    from bench.hostile import FAILED_MS, Behaves, resident_mb
    from bench.tenants import tenants

    findings: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="magnetar-fuzz-") as scratch:
        noted = Path(scratch) / "steps.txt"
        noted.touch()
        command = [
            sys.executable,
            "-m",
            "bench.steps",
            str(noted),
            "standalone",
            "--port",
            "0",
            "--http-port",
            "0",
        ]
        with started(command, Path(scratch), Cpus(None, None)) as broker:
            tenants(broker.http_url)
            behaves = Behaves(broker.service_url)
            behaves.times_ms(1.0)
            before_mb, begin = resident_mb(broker.pid), noted.stat().st_size
            hostile = _Hostile(broker.service_url, broker.http_url, seed)
            lines = [threading.Thread(target=hostile.work, args=(n,), daemon=True) for n in range(_LINES)]
            for line in lines:
                line.start()
            slowest_ms, until = 0.0, time.monotonic() + seconds
            while time.monotonic() < until and not findings:
                slowest_ms = max(slowest_ms, *behaves.times_ms(1.0)[1])
                if slowest_ms >= min(FAILED_MS, _PATIENCE_S * 1_000):
                    findings.append(("", f"the client that behaves waited for {slowest_ms / 1_000:.0f} s"))
            hostile.stop = True
            for line in lines:
                line.join(30)
            grown_mb = resident_mb(broker.pid) - before_mb
            # Before it is stopped: calls that are in work then are cancelled, with a traceback.
            findings += [("", text) for text in _faults(Path(scratch))]
            behaves.close()
        longest = steps.noted_longest_ms(noted, begin)
        lines_of = noted.read_bytes()[begin:].decode().splitlines()
        worst = sorted(lines_of, key=lambda text: -float(text.split()[1]))[:5]
        if longest["turn"] > _TURN_MS_MAX:
            findings.append(("", f"a turn of the event loop took long: {worst}"))
    if grown_mb > _GROWTH_MB_MAX:
        findings.append(("", f"the broker grew by {grown_mb:.0f} MB"))
    return {
        "executions": hostile.done,
        "slowest_ms": round(slowest_ms),
        "turn_ms": longest["turn"],
        "longest": worst,
        "grown_mb": round(grown_mb),
        "findings": findings,
    }


def _faults(scratch: Path) -> list[str]:
    """Tracebacks of the broker's log, each once, by their last line."""
    found: dict[str, str] = {}
    for path in scratch.rglob("*"):
        if path.is_file() and path.suffix in (".log", ".txt", ".out", ".err", ""):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                lines = path.read_text("utf-8").splitlines()
                for at, line in enumerate(lines):
                    if "Traceback (most recent call last)" in line:
                        end = next((n for n in range(at + 1, len(lines)) if lines[n][:1].strip()), at)
                        found.setdefault(
                            lines[end][:120], "\n".join(lines[max(0, at - 1) : end + 1])[-3_000:]
                        )
    return list(found.values())
