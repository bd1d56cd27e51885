"""Version 2 of the protocol: fixed fields, no number on a request. Used on the hot path.

    Packet     length u32 | version u8 | operation u8 | flags u16 | body
    ADD        masterKey 20 | entry                                   -> rc i32 | ledgerId i64 | entryId i64
    READ       ledgerId i64 | entryId i64 | [masterKey 20]            -> rc | ledgerId | entryId | entry
    BATCH      ledgerId | firstEntry i64 | requestId i64 | countMax i32 | bytesMax i64 | [masterKey 20]
                                        -> rc | ledgerId | firstEntry | requestId | (size i32 | entry)*
    AUTH       AuthMessage (protobuf)                                 -> AuthMessage

`length` counts what follows it. Ledger and entry id of an ADD are read from the entry. The master key
follows a READ or BATCH that fences.

Source: BookKeeper protocol, version 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, MutableSequence
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper.digests import HEAD_BYTES, KEY_BYTES
from magnetar.wire.bookkeeper.requests import AddRun, Auth, BatchRead, Read
from magnetar.wire.bookkeeper.responses import Added, AuthDone, BatchReadDone, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status, of_v2, v2_number
from magnetar.wire.frames import FrameError

ADD: Final = 1
READ: Final = 2
AUTH: Final = 3
BATCH_READ: Final = 7

FENCE: Final = 0x1
RECOVERY_ADD: Final = 0x2
HIGH_PRIORITY: Final = 0x4

VERSION: Final = 2

_U32: Final = struct.Struct(">I")
_RUN: Final = struct.Struct(f">I{KEY_BYTES}sq")
"""Header, master key, ledger id: the common start of the packets of a run, after their length field."""
_PACKET: Final = struct.Struct(">II")
"""Length, header."""
_IDS: Final = struct.Struct(">qq")
_READ: Final = struct.Struct(">IIqq")
_BATCH: Final = struct.Struct(">IIqqqiq")
_BATCH_BODY: Final = struct.Struct(">qqqiq")
_ANSWER: Final = struct.Struct(">IIiqq")
"""Length, header, rc, ledgerId, entryId."""
_BATCH_ANSWER: Final = struct.Struct(">IIiqqq")

_ADD_BYTES_MIN: Final = KEY_BYTES + HEAD_BYTES - 8
"""Smallest body of an ADD in bytes: a bookie reads ledger, entry and last add confirmed of an entry, nothing
else."""


ADD_PACKET_BYTES_MIN: Final = 4 + 4 + _ADD_BYTES_MIN
"""Smallest ADD packet in bytes."""


def header(operation: int, flags: int = 0) -> int:
    """The header word that follows the length field."""
    return VERSION << 24 | operation << 16 | flags


_ADD_ANSWER_HEADER: Final = header(ADD)
_ADD_ANSWER_BYTES: Final = _ANSWER.size - 4


def parse_request(data: bytes) -> AddRun | Read | BatchRead | Auth:
    """Parses the request in a packet without its length field. Raises FrameError: the connection must be
    closed."""
    if len(data) < 4:
        raise FrameError(f"packet of {len(data)} bytes")
    word: int = _U32.unpack_from(data)[0]
    version = word >> 24
    operation, flags = (word >> 16 & 0xFF, word & 0xFFFF) if version else (word, 0)
    if version > VERSION:
        raise FrameError(f"packet in version {version} of the protocol")
    if operation == ADD:
        return _parse_add(data, flags)
    if operation == READ:
        return _parse_read(data, flags, version)
    if operation == BATCH_READ:
        return _parse_batch_read(data, flags)
    if operation == AUTH:
        message = _parse_auth(data, 4)
        return Auth(message.authPluginName, message.payload)
    raise FrameError(f"operation {operation} is not known in version 2")


def _parse_add(data: bytes, flags: int) -> AddRun:
    if len(data) - 4 < _ADD_BYTES_MIN:
        raise FrameError(f"ADD of {len(data)} bytes")
    entry = data[4 + KEY_BYTES :]
    ledger_id, entry_id = _IDS.unpack_from(entry)
    run = AddRun(
        ledger_id,
        data[4 : 4 + KEY_BYTES],
        recovery=flags & RECOVERY_ADD != 0,
        high_priority=flags & HIGH_PRIORITY != 0,
    )
    run.entry_ids.append(entry_id)
    run.entries.append(entry)
    run.size_bytes = len(entry)
    return run


def run_of(prefix: bytes) -> AddRun:
    """An empty run for adds that begin with this header, master key and ledger id."""
    word, master_key, ledger_id = _RUN.unpack(prefix)
    return AddRun(
        ledger_id,
        master_key,
        recovery=word & RECOVERY_ADD != 0,
        high_priority=word & HIGH_PRIORITY != 0,
    )


def _parse_read(data: bytes, flags: int, version: int) -> Read:
    if len(data) < 20:
        raise FrameError(f"READ of {len(data)} bytes")
    ledger_id, entry_id = _IDS.unpack_from(data, 4)
    fence = flags & FENCE != 0
    key = _master_key(data, 20) if fence and version >= VERSION else None
    return Read(ledger_id, entry_id, fence=fence, master_key=key, high_priority=flags & HIGH_PRIORITY != 0)


def _parse_batch_read(data: bytes, flags: int) -> BatchRead:
    body_end = 4 + _BATCH_BODY.size
    if len(data) < body_end:
        raise FrameError(f"BATCH_READ of {len(data)} bytes")
    ledger_id, first_entry, request_id, count_max, bytes_max = _BATCH_BODY.unpack_from(data, 4)
    fence = flags & FENCE != 0
    key = _master_key(data, body_end) if fence else None
    return BatchRead(ledger_id, first_entry, request_id, count_max, bytes_max, fence, key)


def _master_key(data: bytes, at: int) -> bytes:
    key = data[at : at + KEY_BYTES]
    if len(key) != KEY_BYTES:
        raise FrameError(f"a fencing read with a master key of {len(key)} bytes")
    return key


def _parse_auth(data: bytes, at: int) -> pb.AuthMessage:
    try:
        message = pb.AuthMessage.FromString(data[at:])
    except DecodeError as error:
        raise FrameError("AUTH without an AuthMessage") from error
    if not message.IsInitialized() or not isinstance(message.authPluginName, str):
        raise FrameError("AUTH without an AuthMessage")
    return message


def encode_request(request: AddRun | Read | BatchRead | Auth) -> list[bytes]:
    """Encodes a request; returns the packets in pieces. Entries are not copied."""
    if isinstance(request, AddRun):
        flags = (RECOVERY_ADD if request.recovery else 0) | (HIGH_PRIORITY if request.high_priority else 0)
        return _encode_adds(request, flags)
    if isinstance(request, Read):
        key = (request.master_key or b"") if request.fence else b""
        flags = (FENCE if request.fence else 0) | (HIGH_PRIORITY if request.high_priority else 0)
        size = _READ.size - 4 + len(key)
        return [_READ.pack(size, header(READ, flags), request.ledger_id, request.entry_id) + key]
    if isinstance(request, BatchRead):
        key = (request.master_key or b"") if request.fence else b""
        word = header(BATCH_READ, FENCE if request.fence else 0)
        head = _BATCH.pack(
            _BATCH.size - 4 + len(key),
            word,
            request.ledger_id,
            request.first_entry,
            request.request_id,
            request.count_max,
            request.bytes_max,
        )
        return [head + key]
    return [_encode_auth(request.plugin, request.payload)]


def _encode_adds(run: AddRun, flags: int) -> list[bytes]:
    rest = _U32.pack(header(ADD, flags)) + run.master_key
    pieces: list[bytes] = []
    head, head_for = b"", -1
    for entry in run.entries:
        size = len(entry)
        if size != head_for:  # Neighbours often have one size.
            head, head_for = _U32.pack(4 + KEY_BYTES + size) + rest, size
        pieces.append(head)
        pieces.append(entry)
    return pieces


def _encode_auth(plugin: str, payload: bytes) -> bytes:
    body = pb.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return _PACKET.pack(4 + len(body), header(AUTH)) + body


def take_added(responses: MutableSequence[Response], data: memoryview, at: int, size: int) -> int:
    """Appends the responses to adds that begin at `data[at]` to `responses`, one object per ledger and
    outcome. Returns their end: the first packet of `data[:size]` that is another response, or not complete.
    """
    whole = at + (size - at) // _ANSWER.size * _ANSWER.size
    of: int | None = None
    rc = 0
    entry_ids: list[int] = []
    for length, word, number, ledger_id, entry_id in _ANSWER.iter_unpack(data[at:whole]):
        if word != _ADD_ANSWER_HEADER or length != _ADD_ANSWER_BYTES:
            break
        if ledger_id != of or number != rc:
            of, rc, entry_ids = ledger_id, number, []
            responses.append(Added(ledger_id, of_v2(number), entry_ids, None))
        entry_ids.append(entry_id)
        at += _ANSWER.size
    return at


def parse_response(data: bytes) -> Added | ReadDone | BatchReadDone | AuthDone:
    """Parses the response in a packet without its length field. Raises FrameError."""
    if len(data) < 4:
        raise FrameError(f"packet of {len(data)} bytes")
    word: int = _U32.unpack_from(data)[0]
    operation = word >> 16 & 0xFF
    if operation == AUTH:
        message = _parse_auth(data, 4)
        return AuthDone(message.authPluginName, message.payload)
    if operation not in (ADD, READ, BATCH_READ):
        raise FrameError(f"answer to operation {operation}, which is not known in version 2")
    if len(data) < 24:
        raise FrameError(f"answer of {len(data)} bytes")
    (number,) = _RC.unpack_from(data, 4)
    ledger_id, entry_id = _IDS.unpack_from(data, 8)
    status = of_v2(number)
    if operation == ADD:
        return Added(ledger_id, status, [entry_id], None)
    if operation == READ:
        entry = data[24:] if status is Status.OK else None
        return ReadDone(ledger_id, entry_id, status, entry=entry)
    if len(data) < 32:
        raise FrameError(f"answer of {len(data)} bytes")
    (request_id,) = _REQUEST_ID.unpack_from(data, 24)
    return BatchReadDone(ledger_id, entry_id, request_id, status, tuple(_sized_entries(data, 32)))


_RC: Final = struct.Struct(">i")
_REQUEST_ID: Final = struct.Struct(">q")


def _sized_entries(data: bytes, at: int) -> Iterable[bytes]:
    while at < len(data):
        size: int = _U32.unpack_from(data, at)[0] if len(data) - at >= 4 else len(data)
        at += 4
        if size > len(data) - at:
            raise FrameError(f"an entry of {size} bytes in {len(data) - at}")
        yield data[at : at + size]
        at += size


def encode_response(response: Added | ReadDone | BatchReadDone | AuthDone) -> list[bytes]:
    """Encodes a response; returns the packets in pieces. Entries are not copied."""
    if isinstance(response, Added):
        number = v2_number(response.status)
        pack = _ANSWER.pack
        ledger_id = response.ledger_id
        return [
            b"".join(
                [pack(24, _ADD_ANSWER_HEADER, number, ledger_id, entry_id) for entry_id in response.entry_ids]
            )
        ]
    if isinstance(response, ReadDone):
        entry = response.entry or b""
        number = v2_number(response.status)
        head = _ANSWER.pack(24 + len(entry), header(READ), number, response.ledger_id, response.entry_id)
        return [head, entry] if entry else [head]
    if isinstance(response, BatchReadDone):
        size = _BATCH_ANSWER.size - 4 + sum(map(len, response.entries)) + 4 * len(response.entries)
        number = v2_number(response.status)
        pieces = [
            _BATCH_ANSWER.pack(
                size,
                header(BATCH_READ),
                number,
                response.ledger_id,
                response.first_entry,
                response.request_id,
            )
        ]
        for entry in response.entries:
            pieces += (_U32.pack(len(entry)), entry)
        return pieces
    return [_encode_auth(response.plugin, response.payload)]
