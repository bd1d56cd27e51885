"""What a bookie reads and writes: a connection's bytes to requests, and answers to bytes.

One port serves both versions. A connection begins in version 3; the first packet that is no request of
version 3 makes it one of version 2 for ever. A packet of version 2 begins with byte 2, which no protobuf
message does.

Source: BookKeeper protocol, framing and detection of the version.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.wire.bookkeeper import v2, v3_requests, v3_responses
from magnetar.wire.bookkeeper.digests import KEY_BYTES
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX, PacketCutter
from magnetar.wire.bookkeeper.requests import AddRun, Request
from magnetar.wire.bookkeeper.responses import Added, AuthDone, BatchReadDone, ReadDone, Response
from magnetar.wire.frames import FrameError

_U32: Final = struct.Struct(">I")
_ADD: Final = struct.Struct(f">II{KEY_BYTES}sqq")
"""Length, header, master key, ledger and entry id of an ADD in version 2."""
_PLAIN_ADD: Final = v2.header(v2.ADD)


class BookieParser:
    """Reads one client's connection. After a FrameError it must not be used again."""

    __slots__ = ("_adds", "_cutter", "_is_v2", "_requests")

    def __init__(self, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        """`packet_bytes_max`: largest packet, without its length, that is accepted."""
        self._cutter = PacketCutter(packet_bytes_max)
        self._is_v2 = False
        self._requests: list[Request] = []
        self._adds: dict[tuple[object, ...], AddRun] = {}

    @property
    def needed(self) -> int:
        """After `parse`: bytes of the incomplete packet at the end, length included; 0 while not known."""
        return self._cutter.needed

    @property
    def is_v2(self) -> bool:
        """Whether the peer was found to speak version 2."""
        return self._is_v2

    def parse(self, buffer: bytearray | memoryview | bytes, size: int) -> tuple[list[Request], int]:
        """Requests of the complete packets in `buffer[:size]`, and the bytes they took.

        What is left is the beginning of a packet: keep it and call again with more behind it. Nothing of the
        result refers to `buffer`. Adds to one ledger come as one run as long as nothing but adds lies between
        them. Raises FrameError, with the requests before the bad packet in it.
        """
        requests = self._requests = []
        try:
            for packet in self._cutter.cut(buffer, size):
                self._packet(packet)
        except FrameError as error:
            error.events = list(requests)
            raise
        finally:
            self._end_runs()
            self._requests = []
        return requests, self._cutter.consumed

    def _packet(self, data: bytes) -> None:
        if self._is_v2 and len(data) > _ADD.size + 8 and data[5] == v2.ADD:
            _, header, master_key, ledger_id, entry_id = _ADD.unpack_from(data)
            run = self._adds.get((ledger_id, header, master_key))
            if run is not None:
                run.entry_ids.append(entry_id)
                run.entries.append(data[8 + KEY_BYTES :])
                return
        request = self._request(data[4:])
        if isinstance(request, AddRun):
            self._add(request, data)
        else:
            self._end_runs()
            self._requests.append(request)

    def _request(self, body: bytes) -> Request:
        if not self._is_v2:
            request = v3_requests.parse_request(body)
            if request is not None:
                return request
            self._is_v2 = True
        return v2.parse_request(body)

    def _add(self, one: AddRun, data: bytes) -> None:
        key: tuple[object, ...]
        if one.txn_ids is None:
            key = (one.ledger_id, _U32.unpack_from(data, 4)[0], one.master_key)
        else:
            key = (one.ledger_id, one.master_key, one.recovery, one.high_priority, one.deferred_sync)
        run = self._adds.get(key)
        if run is None:
            self._adds[key] = one
            self._requests.append(one)
            return
        run.entry_ids += one.entry_ids
        run.entries += one.entries
        if run.txn_ids is not None and one.txn_ids is not None:
            run.txn_ids += one.txn_ids

    def _end_runs(self) -> None:
        for run in self._adds.values():
            run.size_bytes = sum(map(len, run.entries))
        self._adds.clear()


def encode_response(response: Response) -> list[bytes]:
    """The packets of an answer, in pieces, in the version of its request."""
    if isinstance(response, BatchReadDone):
        return v2.encode_response(response)
    if isinstance(response, Added):
        if response.txn_ids is None:
            return v2.encode_response(response)
    elif isinstance(response, ReadDone | AuthDone) and response.txn_id is None:
        return v2.encode_response(response)
    return v3_responses.encode_response(response)
