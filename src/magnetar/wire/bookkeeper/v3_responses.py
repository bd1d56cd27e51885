"""Version 3 of the protocol, answers: one protobuf message per packet, with the number of its request.

    Packet     length u32 | Response

Source: BookKeeper protocol, version 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.ids import LedgerId
from magnetar.wire.bookkeeper import bookkeeper_pb2 as pb
from magnetar.wire.bookkeeper.responses import (
    Added,
    AuthDone,
    BookieInfoDone,
    EntriesListed,
    Forced,
    LacRead,
    LacWritten,
    ReadDone,
    Refused,
    Response,
    TlsStarts,
)
from magnetar.wire.bookkeeper.status import Status, of_v3
from magnetar.wire.bookkeeper.v3_requests import VERSION, packet
from magnetar.wire.frames import FrameError


def parse_response(data: bytes) -> Response:
    """Parses the response in a packet without its length field. Raises FrameError."""
    try:
        response = pb.Response.FromString(data)
    except DecodeError as error:
        raise FrameError(f"answer of {len(data)} bytes cannot be decoded") from error
    if not response.HasField("header") or not response.header.IsInitialized():
        raise FrameError("answer without a header")
    read = _ANSWER_READERS.get(response.header.operation)
    if read is None or not response.HasField(read[0]):
        return Refused(response.header.operation, of_v3(response.status), response.header.txnId)
    return read[1](response)


def _added(response: pb.Response) -> Response:
    add = response.addResponse
    return Added(LedgerId(add.ledgerId), of_v3(add.status), [add.entryId], [response.header.txnId])


def _read_done(response: pb.Response) -> Response:
    read = response.readResponse
    return ReadDone(
        LedgerId(read.ledgerId),
        read.entryId,
        of_v3(read.status),
        response.header.txnId,
        read.body if read.HasField("body") else None,
        read.maxLAC if read.HasField("maxLAC") else None,
        read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
    )


def _auth_done(response: pb.Response) -> Response:
    auth = response.authResponse
    return AuthDone(auth.authPluginName, auth.payload, of_v3(response.status), response.header.txnId)


def _lac_written(response: pb.Response) -> Response:
    write = response.writeLacResponse
    return LacWritten(LedgerId(write.ledgerId), of_v3(write.status), response.header.txnId)


def _lac_read(response: pb.Response) -> Response:
    read = response.readLacResponse
    return LacRead(
        LedgerId(read.ledgerId),
        of_v3(read.status),
        response.header.txnId,
        read.lacBody if read.HasField("lacBody") else None,
        read.lastEntryBody if read.HasField("lastEntryBody") else None,
    )


def _bookie_info_done(response: pb.Response) -> Response:
    info = response.getBookieInfoResponse
    return BookieInfoDone(
        of_v3(info.status),
        response.header.txnId,
        info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None,
        info.freeDiskSpace if info.HasField("freeDiskSpace") else None,
    )


def _tls_starts(response: pb.Response) -> Response:
    return TlsStarts(of_v3(response.status), response.header.txnId)


def _forced(response: pb.Response) -> Response:
    force = response.forceLedgerResponse
    return Forced(LedgerId(force.ledgerId), of_v3(force.status), response.header.txnId)


def _entries_listed(response: pb.Response) -> Response:
    listed = response.getListOfEntriesOfLedgerResponse
    has_entries = listed.HasField("availabilityOfEntriesOfLedger")
    return EntriesListed(
        LedgerId(listed.ledgerId),
        of_v3(listed.status),
        response.header.txnId,
        listed.availabilityOfEntriesOfLedger if has_entries else None,
    )


_ANSWER_READERS: Final[dict[int, tuple[str, Callable[[pb.Response], Response]]]] = {
    pb.READ_ENTRY: ("readResponse", _read_done),
    pb.ADD_ENTRY: ("addResponse", _added),
    pb.AUTH: ("authResponse", _auth_done),
    pb.WRITE_LAC: ("writeLacResponse", _lac_written),
    pb.READ_LAC: ("readLacResponse", _lac_read),
    pb.GET_BOOKIE_INFO: ("getBookieInfoResponse", _bookie_info_done),
    pb.START_TLS: ("header", _tls_starts),
    pb.FORCE_LEDGER: ("forceLedgerResponse", _forced),
    pb.GET_LIST_OF_ENTRIES_OF_LEDGER: ("getListOfEntriesOfLedgerResponse", _entries_listed),
}
"""By operation: the field of its response, and the function that reads it."""


def _response(operation: int, txn_id: int | None, status: Status) -> pb.Response:
    if txn_id is None:
        raise ValueError("an answer without a number cannot go in version 3")
    response = pb.Response()
    response.header.version = VERSION
    response.header.operation = operation  # type: ignore[assignment]  # a number of the enum
    response.header.txnId = txn_id
    response.status = status.value  # type: ignore[assignment]  # as above
    return response


def encode_response(response: Response) -> list[bytes]:
    """Encodes a response, whose number must be set; returns the packets. Raises ValueError."""
    if isinstance(response, Added):
        return [b"".join(_encode_added(response))]
    write = _ANSWER_WRITERS.get(type(response))
    if write is None:
        raise ValueError(f"{type(response).__name__} is not an answer of version 3")
    return [packet(write(response))]


def _encode_added(added: Added) -> list[bytes]:
    if added.txn_ids is None:
        raise ValueError("an answer without a number cannot go in version 3")
    packets = []
    for entry_id, txn_id in zip(added.entry_ids, added.txn_ids, strict=True):
        message = _response(pb.ADD_ENTRY, txn_id, added.status)
        message.addResponse.status = message.status
        message.addResponse.ledgerId = added.ledger_id
        message.addResponse.entryId = entry_id
        packets.append(packet(message))
    return packets


def _encode_read_done(done: ReadDone) -> pb.Response:
    message = _response(pb.READ_ENTRY, done.txn_id, done.status)
    read = message.readResponse
    read.status = message.status
    read.ledgerId = done.ledger_id
    read.entryId = done.entry_id
    if done.entry is not None:
        read.body = done.entry
    if done.lac_max is not None:
        read.maxLAC = done.lac_max
    if done.lac_time_ms is not None:
        read.lacUpdateTimestamp = done.lac_time_ms
    return message


def _encode_lac_written(done: LacWritten) -> pb.Response:
    message = _response(pb.WRITE_LAC, done.txn_id, done.status)
    message.writeLacResponse.status = message.status
    message.writeLacResponse.ledgerId = done.ledger_id
    return message


def _encode_lac_read(done: LacRead) -> pb.Response:
    message = _response(pb.READ_LAC, done.txn_id, done.status)
    read = message.readLacResponse
    read.status = message.status
    read.ledgerId = done.ledger_id
    if done.blob is not None:
        read.lacBody = done.blob
    if done.last_entry is not None:
        read.lastEntryBody = done.last_entry
    return message


def _encode_forced(done: Forced) -> pb.Response:
    message = _response(pb.FORCE_LEDGER, done.txn_id, done.status)
    message.forceLedgerResponse.status = message.status
    message.forceLedgerResponse.ledgerId = done.ledger_id
    return message


def _encode_entries_listed(done: EntriesListed) -> pb.Response:
    message = _response(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, done.txn_id, done.status)
    listed = message.getListOfEntriesOfLedgerResponse
    listed.status = message.status
    listed.ledgerId = done.ledger_id
    if done.entries is not None:
        listed.availabilityOfEntriesOfLedger = done.entries
    return message


def _encode_bookie_info_done(done: BookieInfoDone) -> pb.Response:
    message = _response(pb.GET_BOOKIE_INFO, done.txn_id, done.status)
    info = message.getBookieInfoResponse
    info.status = message.status
    if done.capacity_bytes is not None:
        info.totalDiskCapacity = done.capacity_bytes
    if done.free_bytes is not None:
        info.freeDiskSpace = done.free_bytes
    return message


def _encode_tls_starts(done: TlsStarts) -> pb.Response:
    message = _response(pb.START_TLS, done.txn_id, done.status)
    message.startTLSResponse.SetInParent()
    return message


def _encode_auth_done(done: AuthDone) -> pb.Response:
    message = _response(pb.AUTH, done.txn_id, done.status)
    message.authResponse.authPluginName = done.plugin
    message.authResponse.payload = done.payload
    return message


def _encode_refused(done: Refused) -> pb.Response:
    return _response(done.operation, done.txn_id, done.status)


_ANSWER_WRITERS: Final[dict[type, Callable[..., pb.Response]]] = {
    ReadDone: _encode_read_done,
    LacWritten: _encode_lac_written,
    LacRead: _encode_lac_read,
    Forced: _encode_forced,
    EntriesListed: _encode_entries_listed,
    BookieInfoDone: _encode_bookie_info_done,
    TlsStarts: _encode_tls_starts,
    AuthDone: _encode_auth_done,
    Refused: _encode_refused,
}
