"""Answers the requests of the broker's process in the worker process, one at a time, over a socket.

The frames are those of `magnetar.tiered.parquet.frames`.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from magnetar.base.entries import EntryRun
from magnetar.base.errors import DiskFullError, StorageError
from magnetar.history import key_directory
from magnetar.history.files import PathSource, Room
from magnetar.history.key_directory import KeyDirectory
from magnetar.history.manners import Manners
from magnetar.history.merging import alike, entries_of, merge_segments
from magnetar.history.reader import SegmentReader
from magnetar.history.segment_writer import write_segment
from magnetar.history.verifying import verify_segment
from magnetar.tiered.parquet import requests
from magnetar.tiered.parquet.frames import HEAD, RANGE, SIZE, FrameKind, decode_runs
from magnetar.tiered.parquet.handover import Handover
from magnetar.tiered.parquet.parquet_history import ByteSource, Footer, HistoryError, KeyPlace, MessagePlace

READERS_MAX: Final = 64
"""Most segments whose footers are kept; some ten kilobytes each."""
REBUILT_MAX: Final = 4
"""Most segments of which rebuilt entries are kept; at most two row groups each, of some 20 MiB."""

DIRECTORIES_MAX: Final = 32
"""Most directories of keys whose beginnings are kept; 64 KiB each."""


class AbortedError(HistoryError):
    """The broker's process gave up the call."""


class HistoryConnection:
    """Sends and receives frames over the socket."""

    _handover: Handover | None = None

    def __init__(self, stream: socket.socket, handover: Handover | None = None) -> None:
        """`handover`: the shared memory; None: all runs go through the socket."""
        self._stream = stream
        self._handover = handover
        self._file = stream.makefile("rb", buffering=1 << 16)

    def send(self, kind: FrameKind, body: bytes) -> None:
        """Sends a frame. Raises OSError when the peer is gone."""
        self._stream.sendall(HEAD.pack(len(body), kind))
        self._stream.sendall(body)

    def send_runs(self, parts: Sequence[bytes | memoryview]) -> None:
        """Sends the body of a RUNS frame, in parts. Raises OSError when the peer is gone."""
        size = None if self._handover is None else self._handover.put(parts)
        if size is None:
            self.send(FrameKind.RUNS, b"".join(parts))
        else:
            self.send(FrameKind.RUNS_PUT, SIZE.pack(size))

    def receive(self) -> tuple[FrameKind, bytes]:
        """Receives a frame. Raises EOFError when the peer is gone."""
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        size, kind = HEAD.unpack(head)
        body = self._file.read(size)
        if len(body) < size:
            raise EOFError
        return FrameKind(kind), body

    def runs(self) -> Iterator[EntryRun]:
        """The entry runs from the broker's process. Raises AbortedError."""
        while True:
            self.send(FrameKind.WANT_RUNS, b"")
            kind, body = self.receive()
            if kind is FrameKind.END:
                return
            if kind is FrameKind.ABORT:
                raise AbortedError("given up")
            if kind is FrameKind.RUNS_PUT:
                assert self._handover is not None
                yield from decode_runs(self._handover.memory, *SIZE.unpack(body))
            else:
                yield from decode_runs(body)


class RemoteSource:
    """A segment that only the broker's process can read."""

    def __init__(
        self,
        connection: HistoryConnection,
        name: str,
        size: int,
        base: int = 0,
        *,
        footer: Footer | None = None,
    ) -> None:
        """`base`: offset at which the segment begins when the broker joined several; `footer`: see
        `KnownEnd`."""
        self._connection = connection
        self.footer = footer
        self._base = base
        self.name = name
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        """See `ByteSource`. Raises AbortedError when the broker could not read it; HistoryError when it got
        fewer bytes."""
        self._connection.send(FrameKind.WANT_BYTES, RANGE.pack(self._base + offset, length))
        kind, body = self._connection.receive()
        if kind is FrameKind.ABORT:
            raise AbortedError("given up")
        if len(body) != length:
            raise HistoryError(f"{self.name} gave {len(body)} of {length} bytes at {offset}")
        return body


class HistoryServer:
    """Serves the requests of one connection."""

    def __init__(self, connection: HistoryConnection, manners: Manners | None = None) -> None:
        """`manners`: how segments are written and compared; None: at once."""
        self._connection = connection
        self._manners = manners
        self._room = Room()
        self._readers: OrderedDict[tuple[str, int, str | None], SegmentReader] = OrderedDict()
        self._directories: OrderedDict[tuple[str, int], KeyDirectory] = OrderedDict()

    def serve(self) -> None:
        """Serves until the other side closes the connection."""
        # The broker's end of the pipe is closed: the worker is done.
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                kind, body = self._connection.receive()
                try:
                    answer = self._answer(kind, requests.load(body))
                except (EOFError, ConnectionError):
                    raise
                except Exception as error:  # noqa: BLE001  # reported to the caller, which handles it
                    self._connection.send(FrameKind.FAILED, _described(error))
                else:
                    if isinstance(answer, bytes):
                        self._connection.send(FrameKind.RESULT, answer)
                    else:
                        self._connection.send_runs(answer)

    def _answer(self, kind: FrameKind, request: requests.Values) -> bytes | list[bytes | memoryview]:
        """A result as JSON, or entry runs in parts."""
        if kind is FrameKind.CONVERT:
            origin = requests.load_origin(request["origin"])
            summary = write_segment(self._connection.runs(), origin, request["path"], self._manners)
            return summary.to_json().encode()
        if kind is FrameKind.MERGE_KEYS:
            return requests.dump({"size": self._merged(request)})
        if kind is FrameKind.FIND_KEY:
            found_key = self._directory(request).find(bytes.fromhex(request["key"]))
            return requests.dump(found_key._asdict())
        if kind is FrameKind.ALIKE:
            return requests.dump({"runs": alike(self._joined(request))})
        if kind is FrameKind.MERGE:
            origin = requests.load_origin(request["origin"])
            merged = merge_segments(self._joined(request), origin, request["path"], self._manners)
            return merged.to_json().encode()
        if kind is FrameKind.VERIFY_MERGED:
            made, *parts = self._joined(request)
            compared = verify_segment(SegmentReader(made), entries_of(parts, self._manners), self._manners)
            return requests.dump({"entries": compared})
        return self._read(kind, request)

    def _read(self, kind: FrameKind, request: requests.Values) -> bytes | list[bytes | memoryview]:
        reader = self._reader(request)
        if kind is FrameKind.ENTRIES:
            return reader.frame_parts(request["ledger_id"], request["first_entry"], request["bytes_max"])
        if kind is FrameKind.AHEAD:
            reader.ahead(request["ledger_id"], request["first_entry"])
            return b"{}"
        if kind is FrameKind.POSITION:
            entry = reader.position_at(request["ledger_id"], request["time_ms"])
            return requests.dump({"entry": entry})
        if kind is FrameKind.LOOKUP:
            before = None if request["before"] is None else MessagePlace(*request["before"])
            found = reader.lookup(bytes.fromhex(request["key"]), request["count_max"], before)
            return requests.dump_messages(found, reader.key_damage)
        assert kind is FrameKind.VERIFY
        compared = verify_segment(reader, self._connection.runs(), self._manners)
        return requests.dump({"entries": compared})

    def _source(self, request: requests.Values, base: int = 0) -> ByteSource:
        name, size, path = request["name"], request["size"], request["path"]
        footer = None if request["footer"] is None else Footer(*request["footer"])
        if path is None:
            return RemoteSource(self._connection, name, size, base, footer=footer)
        return PathSource(path, name, size, footer=footer)

    def _joined(self, request: requests.Values) -> list[ByteSource]:
        """The parts of the source that the broker joined."""
        found: list[ByteSource] = []
        base = 0
        for each in request["sources"]:
            found.append(self._source(each, base))
            base += found[-1].size
        return found

    def _merged(self, request: requests.Values) -> int:
        parts = []
        for source, each in zip(self._joined(request), request["sources"], strict=True):
            segment = each["segment"]
            if segment is None:
                directory = KeyDirectory(source)
                parts.append((directory.segments, *directory.hashes()))
            else:
                hashes = SegmentReader(source).key_hashes()
                parts.append(([KeyPlace(*segment)], hashes, np.zeros(len(hashes), np.int64)))
        try:
            data = key_directory.encode(parts)
        except key_directory.TooManyKeysError:
            return 0
        with open(request["path"], "xb") as file:
            file.write(data)
        return len(data)

    def _directory(self, request: requests.Values) -> KeyDirectory:
        key = (request["name"], request["size"])
        directory = self._directories.pop(key, None) or KeyDirectory(self._source(request))
        self._directories[key] = directory
        if len(self._directories) > DIRECTORIES_MAX:
            self._directories.popitem(last=False)
        return directory

    def _reader(self, request: requests.Values) -> SegmentReader:
        key = (request["name"], request["size"], request["path"])
        reader = self._readers.pop(key, None)
        if reader is None:
            reader = SegmentReader(self._source(request), self._room)
        self._readers[key] = reader
        if len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)
        for old in list(self._readers.values())[:-REBUILT_MAX]:
            old.forget()
        return reader


def _described(error: Exception) -> bytes:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return requests.dump_error(DiskFullError(), f"the disk is full, no segment written: {error}")
    if isinstance(error, StorageError | OSError):
        return requests.dump_error(error, str(error))
    # This is our bug: the traceback is more useful than the message.
    return requests.dump_error(error, "".join(traceback.format_exception(error)))
