"""Version 3 of the protocol, requests: one protobuf message per packet, numbered by the client.

    Packet     length u32 | Request

Source: BookKeeper protocol, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError, Message

from magnetar.base.ids import LedgerId
from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper.requests import (
    AddRun,
    Auth,
    BookieInfo,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    Request,
    StartTls,
    Unserved,
    WriteLac,
)

VERSION: Final = pb.VERSION_THREE
MASTER_KEY_BYTES_MAX: Final = 20
"""Length of all keys of version 2, and of those that BookKeeper's clients make. A bookie keeps the key of
each ledger in memory, also of one that a fence has made known, so version 3 gets no longer ones."""
_PRIORITY_HIGH: Final = 100
_DEFERRED_SYNC: Final = 0x1
_CAPACITY: Final = 0x1
_FREE: Final = 0x2

_LENGTH: Final = struct.Struct(">I")

_FIELDS: Final = {
    pb.READ_ENTRY: "readRequest",
    pb.ADD_ENTRY: "addRequest",
    pb.AUTH: "authRequest",
    pb.WRITE_LAC: "writeLacRequest",
    pb.READ_LAC: "readLacRequest",
    pb.GET_BOOKIE_INFO: "getBookieInfoRequest",
    pb.START_TLS: "startTLSRequest",
    pb.FORCE_LEDGER: "forceLedgerRequest",
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedgerRequest",
}
"""The field of a request that its operation requires."""


def packet(message: Message) -> bytes:
    """A message preceded by its length."""
    body = message.SerializeToString()
    return _LENGTH.pack(len(body)) + body


def parse_request(data: bytes) -> Request | None:
    """Parses the request in a packet without its length field; None when it is not a request of version 3.

    Strict: every required field must be set. The first packet that is not a request of version 3 shows a peer
    of version 2.
    """
    try:
        request = pb.Request.FromString(data)
    except DecodeError:
        return None
    header = request.header
    # protobuf reads an operation without a name here as missing, so the packet is not a request: as with
    # Apache's bookies.
    if not request.HasField("header") or not header.IsInitialized():
        return None
    if header.version != VERSION:
        return Unserved(header.operation, header.txnId, wrong_version=True)
    field = _FIELDS.get(header.operation)
    if field is None or not request.HasField(field):
        return _unserved(request)
    if not request.IsInitialized():
        return None
    return _READERS[header.operation](request)


def _unserved(request: pb.Request) -> Unserved:
    return Unserved(request.header.operation, request.header.txnId)


def _add(request: pb.Request) -> Request:
    header, add = request.header, request.addRequest
    if len(add.masterKey) > MASTER_KEY_BYTES_MAX:
        return _unserved(request)
    run = AddRun(
        LedgerId(add.ledgerId),
        add.masterKey,
        recovery=add.flag == pb.AddRequest.RECOVERY_ADD and add.HasField("flag"),
        high_priority=header.priority > 0,
        deferred_sync=add.writeFlags & _DEFERRED_SYNC != 0,
        v3=True,
    )
    run.entry_ids.append(add.entryId)
    run.entries.append(add.body)
    run.size_bytes = len(add.body)
    assert run.txn_ids is not None
    run.txn_ids.append(header.txnId)
    return run


def _read(request: pb.Request) -> Request:
    header, read = request.header, request.readRequest
    if len(read.masterKey) > MASTER_KEY_BYTES_MAX:
        return _unserved(request)
    flag = read.flag if read.HasField("flag") else 0
    return Read(
        LedgerId(read.ledgerId),
        read.entryId,
        txn_id=header.txnId,
        fence=flag == pb.ReadRequest.FENCE_LEDGER,
        master_key=read.masterKey if read.HasField("masterKey") else None,
        high_priority=header.priority > 0,
        previous_lac=read.previousLAC if read.HasField("previousLAC") else None,
        timeout_ms=read.timeOut if read.HasField("timeOut") else None,
        piggyback=flag == pb.ReadRequest.ENTRY_PIGGYBACK,
    )


def _write_lac(request: pb.Request) -> Request:
    write = request.writeLacRequest
    if len(write.masterKey) > MASTER_KEY_BYTES_MAX:
        return _unserved(request)
    return WriteLac(LedgerId(write.ledgerId), write.lac, write.masterKey, write.body, request.header.txnId)


def _bookie_info(request: pb.Request) -> Request:
    requested = request.getBookieInfoRequest.requested
    return BookieInfo(request.header.txnId, requested & _CAPACITY != 0, requested & _FREE != 0)


def _auth(request: pb.Request) -> Request:
    auth = request.authRequest
    return Auth(auth.authPluginName, auth.payload, request.header.txnId)


_READERS: Final[dict[int, Callable[[pb.Request], Request]]] = {
    pb.READ_ENTRY: _read,
    pb.ADD_ENTRY: _add,
    pb.AUTH: _auth,
    pb.WRITE_LAC: _write_lac,
    pb.READ_LAC: lambda request: ReadLac(LedgerId(request.readLacRequest.ledgerId), request.header.txnId),
    pb.GET_BOOKIE_INFO: _bookie_info,
    pb.START_TLS: lambda request: StartTls(request.header.txnId),
    pb.FORCE_LEDGER: lambda request: ForceLedger(
        LedgerId(request.forceLedgerRequest.ledgerId), request.header.txnId
    ),
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: lambda request: ListEntries(
        LedgerId(request.getListOfEntriesOfLedgerRequest.ledgerId), request.header.txnId
    ),
}


def _request(operation: pb.OperationType, txn_id: int, *, high_priority: bool = False) -> pb.Request:
    request = pb.Request()
    request.header.version = VERSION
    request.header.operation = operation
    request.header.txnId = txn_id
    if high_priority:
        request.header.priority = _PRIORITY_HIGH
    return request


def encode_request(request: Request) -> list[bytes]:
    """Encodes a request, whose number must be set; returns the packets. Raises ValueError for BatchRead,
    which only version 2 has."""
    if isinstance(request, AddRun):
        return _encode_adds(request)
    write = _WRITERS.get(type(request))
    if write is None:
        raise ValueError(f"{type(request).__name__} is not a request of version 3")
    return [packet(write(request))]


def _encode_adds(run: AddRun) -> list[bytes]:
    if run.txn_ids is None:
        raise ValueError("adds without numbers cannot go in version 3")
    packets = []
    for entry_id, entry, txn_id in zip(run.entry_ids, run.entries, run.txn_ids, strict=True):
        message = _request(pb.ADD_ENTRY, txn_id, high_priority=run.high_priority)
        add = message.addRequest
        add.ledgerId = run.ledger_id
        add.entryId = entry_id
        add.masterKey = run.master_key
        add.body = entry
        if run.recovery:
            add.flag = pb.AddRequest.RECOVERY_ADD
        if run.deferred_sync:
            add.writeFlags = _DEFERRED_SYNC
        packets.append(packet(message))
    return packets


def _encode_read(request: Read) -> pb.Request:
    if request.txn_id is None:
        raise ValueError("a read without a number cannot go in version 3")
    message = _request(pb.READ_ENTRY, request.txn_id, high_priority=request.high_priority)
    read = message.readRequest
    read.ledgerId = request.ledger_id
    read.entryId = request.entry_id
    if request.master_key is not None:
        read.masterKey = request.master_key
    if request.previous_lac is not None:
        read.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        read.timeOut = request.timeout_ms
    if request.fence:
        read.flag = pb.ReadRequest.FENCE_LEDGER
    elif request.piggyback:
        read.flag = pb.ReadRequest.ENTRY_PIGGYBACK
    return message


def _encode_write_lac(request: WriteLac) -> pb.Request:
    message = _request(pb.WRITE_LAC, request.txn_id)
    write = message.writeLacRequest
    write.ledgerId = request.ledger_id
    write.lac = request.lac
    write.masterKey = request.master_key
    write.body = request.blob
    return message


def _encode_read_lac(request: ReadLac) -> pb.Request:
    message = _request(pb.READ_LAC, request.txn_id)
    message.readLacRequest.ledgerId = request.ledger_id
    return message


def _encode_force(request: ForceLedger) -> pb.Request:
    message = _request(pb.FORCE_LEDGER, request.txn_id)
    message.forceLedgerRequest.ledgerId = request.ledger_id
    return message


def _encode_list(request: ListEntries) -> pb.Request:
    message = _request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, request.txn_id)
    message.getListOfEntriesOfLedgerRequest.ledgerId = request.ledger_id
    return message


def _encode_bookie_info(request: BookieInfo) -> pb.Request:
    message = _request(pb.GET_BOOKIE_INFO, request.txn_id)
    requested = (_CAPACITY if request.capacity else 0) | (_FREE if request.free else 0)
    message.getBookieInfoRequest.requested = requested
    return message


def _encode_start_tls(request: StartTls) -> pb.Request:
    message = _request(pb.START_TLS, request.txn_id)
    message.startTLSRequest.SetInParent()
    return message


def _encode_auth(request: Auth) -> pb.Request:
    if request.txn_id is None:
        raise ValueError("an authentication without a number cannot go in version 3")
    message = _request(pb.AUTH, request.txn_id)
    message.authRequest.authPluginName = request.plugin
    message.authRequest.payload = request.payload
    return message


_WRITERS: Final[dict[type, Callable[..., pb.Request]]] = {
    Read: _encode_read,
    WriteLac: _encode_write_lac,
    ReadLac: _encode_read_lac,
    ForceLedger: _encode_force,
    ListEntries: _encode_list,
    BookieInfo: _encode_bookie_info,
    StartTls: _encode_start_tls,
    Auth: _encode_auth,
}
