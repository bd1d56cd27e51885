"""The bookie's side of a connection: bytes to requests, responses to bytes.

One port serves both versions. A connection begins in version 3; the first packet that is not a request of
version 3 switches it to version 2 for the rest of its life. A packet of version 2 begins with byte 2, which
no protobuf message does.

Source: BookKeeper protocol, framing and detection of the version.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from magnetar.wire.bookkeeper import v2, v3_requests, v3_responses
from magnetar.wire.bookkeeper.digests import KEY_BYTES
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX, PacketCutter
from magnetar.wire.bookkeeper.requests import AddRun, Request
from magnetar.wire.bookkeeper.responses import Added, AuthDone, BatchReadDone, ReadDone, Response
from magnetar.wire.frames import FrameError

_U32: Final = struct.Struct(">I")
_ADD: Final = struct.Struct(f">I{4 + KEY_BYTES + 8}xq")
"""Length and entry id of an ADD in version 2."""
_PREFIX: Final = slice(4, 4 + 4 + KEY_BYTES + 8)
"""The bytes that all adds of a run share: header, master key, ledger id."""
_ENTRY_AT: Final = 4 + 4 + KEY_BYTES
_ALIKE_MIN: Final = 16
"""Fewer packets of one size are parsed one by one; comparing them would cost more."""
REQUEST_WORK: Final = 16
"""What a request counts for, besides adds: some fifteen microseconds of a bookie's time."""
_RUN_WORK: Final = 8
"""The same of a run of adds, beside its adds."""
_ADD_WORK: Final = 4
"""The same of an add whose packet is parsed by itself."""
BYTES_OF_WORK: Final = 1_024
"""Bytes of adds that count for 1: some eight small adds of version 2."""
_COPIED_BELOW_BYTES: Final = 4_096
"""Packets smaller than this are sliced from a copy of the buffer, which is cheaper than slicing a view."""


class BookieParser:
    """Reads one client's connection. After a FrameError it must not be used again."""

    __slots__ = (
        "_adds_v2",
        "_adds_v3",
        "_cutter",
        "_is_v2",
        "_packet_bytes_max",
        "_requests",
        "stopped",
        "work",
    )

    def __init__(self, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        """`packet_bytes_max`: largest packet accepted, in bytes, without its length field."""
        self._packet_bytes_max = packet_bytes_max
        self._cutter = PacketCutter(packet_bytes_max)
        self._is_v2 = False
        self._requests: list[Request] = []
        self._adds_v2: dict[bytes, AddRun] = {}
        """Open runs by the bytes that their packets share."""
        self.work = 0
        """What the requests of the last `parse` count for: a request 16, adds and their bytes less."""
        self.stopped = False
        """Whether the last `parse` has left complete packets."""
        self._adds_v3: dict[tuple[object, ...], AddRun] = {}

    @property
    def needed(self) -> int:
        """After `parse`: bytes of the incomplete packet at the end, length field included; 0 while not
        known."""
        return self._cutter.needed

    @property
    def is_v2(self) -> bool:
        """Whether the peer speaks version 2."""
        return self._is_v2

    def parse(
        self, buffer: bytearray | memoryview | bytes, size: int, work_max: int = sys.maxsize
    ) -> tuple[list[Request], int]:
        """Parses the complete packets in `buffer[:size]`: their requests, and the bytes consumed.

        Stops behind the request with which their work has reached `work_max`; then `stopped` tells whether
        complete packets are left. The rest is the beginning of a packet otherwise: keep it and call again
        with more bytes appended. The result does not refer to `buffer`. Adds to one ledger form one run as
        long as only adds lie between them. Raises FrameError, which holds the requests before the bad packet.
        """
        requests = self._requests = []
        self.work, self.stopped = 0, False
        at = 0
        try:
            with memoryview(buffer) as view:
                data: memoryview | bytes = view
                if size >= 4 and _U32.unpack_from(view)[0] < _COPIED_BELOW_BYTES:
                    data = bytes(view[:size])
                while True:
                    if self._is_v2 and self.work < work_max:
                        at = self._take_adds(data, at, size, work_max)
                    end = self._cutter.end_of(data, at, size)
                    if not end:
                        return requests, at
                    if self.work >= work_max:
                        self.stopped = True
                        return requests, at
                    self._packet(data, at, end)
                    at = end
        except FrameError as error:
            error.events = list(requests)
            raise
        finally:
            self._end_runs()
            self._requests = []

    def _take_adds(self, data: memoryview | bytes, at: int, size: int, work_max: int) -> int:
        """Takes the adds of version 2 from `data[at]` on; returns where the first other packet starts, or the
        first run too many. Adds to one ledger in a row are taken together, however many they are."""
        begun, work = at, self.work
        runs, unpack, length_max = self._adds_v2, _ADD.unpack_from, self._packet_bytes_max
        prefix_at, prefix_end, bytes_min = _PREFIX.start, _PREFIX.stop, v2.ADD_PACKET_BYTES_MIN
        prefix = b""
        looks = True
        while size - at >= bytes_min:
            length, entry_id = unpack(data, at)
            end = at + 4 + length
            if end > size or length > length_max or end - at < bytes_min:
                break
            found = data[at + prefix_at : at + prefix_end]
            if found != prefix:
                if work >= work_max:
                    break
                prefix = bytes(found)
                run = runs.get(prefix)
                if run is None:
                    if prefix[0] != v2.VERSION or prefix[1] != v2.ADD:
                        break
                    run = runs[prefix] = v2.run_of(prefix)
                    self._requests.append(run)
                    work += _RUN_WORK
                # Each search for another run costs as much as some adds.
                work += 1
                entry_ids, entries = run.entry_ids, run.entries
                add_id, add_entry = entry_ids.append, entries.append
            add_id(entry_id)
            add_entry(bytes(data[at + _ENTRY_AT : end]))
            if looks and isinstance(data, bytes) and size - end >= _ALIKE_MIN * (end - at):
                stop = _alike_until(data, at, end, size)
                looks = stop > end
                entry_ids += _entry_ids(end - at, data[end:stop])
                starts, ends = range(end + _ENTRY_AT, stop, end - at), range(2 * end - at, stop + 1, end - at)
                entries += [data[start:until] for start, until in zip(starts, ends, strict=True)]
                end = stop
            at = end
        self.work = work + (at - begun) // BYTES_OF_WORK
        return at

    def _packet(self, data: memoryview | bytes, at: int, end: int) -> None:
        request = self._request(bytes(data[at + 4 : end]))
        if not isinstance(request, AddRun):
            self._end_runs()
            self._requests.append(request)
            self.work += REQUEST_WORK
            return
        self.work += _ADD_WORK + (end - at) // BYTES_OF_WORK
        if request.txn_ids is None:
            # The first packet of a connection, or a packet of a version before 2.
            run = self._adds_v2.setdefault(bytes(data[at:end][_PREFIX]), request)
            self._join(run, request)
        else:
            key = (
                request.ledger_id,
                request.master_key,
                request.recovery,
                request.high_priority,
                request.deferred_sync,
            )
            self._join(self._adds_v3.setdefault(key, request), request)

    def _request(self, body: bytes) -> Request:
        if not self._is_v2:
            request = v3_requests.parse_request(body)
            if request is not None:
                return request
            self._is_v2 = True
        return v2.parse_request(body)

    def _join(self, run: AddRun, one: AddRun) -> None:
        if run is one:
            self._requests.append(one)
            self.work += _RUN_WORK
            return
        run.entry_ids += one.entry_ids
        run.entries += one.entries
        if run.txn_ids is not None and one.txn_ids is not None:
            run.txn_ids += one.txn_ids

    def _end_runs(self) -> None:
        for run in (*self._adds_v2.values(), *self._adds_v3.values()):
            run.size_bytes = sum(map(len, run.entries))
        self._adds_v2.clear()
        self._adds_v3.clear()


def _alike_until(data: bytes, at: int, end: int, size: int) -> int:
    """Where the packets end that follow `data[at:end]` with its size and its run: all that fit `data[:size]`,
    or none (`end`). Compares one byte of all packets at a time."""
    step = end - at
    count = (size - end) // step
    stop = end + count * step
    if data[stop - step : stop - step + _PREFIX.stop] != data[at : at + _PREFIX.stop]:
        return end
    for column in range(_PREFIX.stop):
        if data[end + column : stop : step] != data[at + column : at + column + 1] * count:
            return end
    return stop


def _entry_ids(packet_bytes: int, packets: bytes) -> Iterator[int]:
    return chain.from_iterable(_ids_of(packet_bytes).iter_unpack(packets))


@lru_cache(maxsize=64)
def _ids_of(packet_bytes: int) -> struct.Struct:
    """A struct that reads the entry id of an ADD of this many bytes."""
    return struct.Struct(f">{_PREFIX.stop}xq{packet_bytes - _PREFIX.stop - 8}x")


def encode_response(response: Response) -> list[bytes]:
    """Encodes a response in the version of its request; returns the packets in pieces."""
    if isinstance(response, BatchReadDone):
        return v2.encode_response(response)
    if isinstance(response, Added):
        if response.txn_ids is None:
            return v2.encode_response(response)
    elif isinstance(response, ReadDone | AuthDone) and response.txn_id is None:
        return v2.encode_response(response)
    return v3_responses.encode_response(response)
