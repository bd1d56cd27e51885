"""Writes a segment's file with its checksum, and reads segments in ranges."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache, partial
from typing import BinaryIO, Final

from magnetar.history.manners import Manners
from magnetar.tiered.parquet.parquet_history import ByteSource, DamagedSegmentError, Footer
from magnetar.wire.checksum import crc32c_extend

PIECE_BYTES: Final = 256 << 10
"""Bytes of a piece, which is written to the disk before the next one begins. A commit of the message store on
the same disk waits for one piece at most. Pieces of 4 MiB delayed commits by ten milliseconds, a single sync
at the end by tenths of seconds."""

_WRITE_OUT: Final = 1 | 2 | 4
"""Flags of Linux's sync_file_range: wait for writes under way, start to write the range, wait for the end."""


class SummedFile:
    """A new file that computes its checksum while it is written. pyarrow uses it as a Python file; written
    bytes wait in memory until `drain`."""

    def __init__(self, path: str, manners: Manners) -> None:
        """`manners`: how pieces are written. Raises FileExistsError and other OSErrors."""
        self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115  (closed by `close`)
        self._manners = manners
        self._waiting: list[bytes] = []
        self.crc32c = 0
        self.size = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """Takes all of `data` into memory; returns its length."""
        whole = bytes(data)
        self._waiting.append(whole)
        self.crc32c = crc32c_extend(self.crc32c, whole)
        self.size += len(whole)
        return len(whole)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Does nothing; `drain` writes."""

    def drain(self) -> None:
        """Writes the waiting bytes to the disk, piece by piece. Raises OSError."""
        waiting, self._waiting = self._waiting, []
        for piece in _pieces(waiting):
            self._manners.write(partial(self._write_out, memoryview(piece)))

    def _write_out(self, piece: memoryview) -> None:
        offset = self._file.tell()
        length = len(piece)
        while piece:
            piece = piece[self._file.write(piece) :]
        write_out(self._file.fileno(), offset, length)

    def sync(self) -> None:
        """Makes the file durable; the caller syncs its folder. Raises OSError."""
        self.drain()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._waiting = []
        self._file.close()


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """The same bytes in pieces of about PIECE_BYTES; large parts are not copied."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < PIECE_BYTES:
            small.append(part)
        if small and (len(part) >= PIECE_BYTES or sum(map(len, small)) >= PIECE_BYTES):
            yield b"".join(small)
            small = []
        if len(part) >= PIECE_BYTES:
            view = memoryview(part)
            for start in range(0, len(part), PIECE_BYTES):
                yield view[start : start + PIECE_BYTES]
    if small:
        yield b"".join(small)


def write_out(file: int, offset: int, length: int) -> None:
    """Waits until this range of the file is on the disk. Raises OSError.

    On Linux this needs no commit of the file system's journal, which would delay other writers; elsewhere the
    whole file is synced.
    """
    call = _sync_file_range()
    if call is None:
        os.fsync(file)
    elif call(file, offset, length, _WRITE_OUT):
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE):
            raise OSError(code, os.strerror(code))
        os.fsync(file)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The function of the C library, which Python does not offer; None when the library lacks it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = call
    return found


class LocalFile:
    """A local file, read in ranges."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.name = path
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by `close`)
        self.size = os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on. Raises DamagedSegmentError when the file ends earlier."""
        data = os.pread(self._file.fileno(), length, offset)
        while len(data) < length:
            more = os.pread(self._file.fileno(), length - len(data), offset + len(data))
            if not more:
                raise DamagedSegmentError(f"{self.name} ends at byte {offset + len(data)}")
            data += more
        return data

    def read_into(self, offset: int, room: memoryview) -> None:
        """Fills `room`. Raises DamagedSegmentError when the file ends earlier."""
        while room:
            count = os.preadv(self._file.fileno(), [room], offset)
            if not count:
                raise DamagedSegmentError(f"{self.name} ends at byte {offset}")
            room, offset = room[count:], offset + count

    def close(self) -> None:
        self._file.close()


class PathSource:
    """A segment in a file that is opened for each read, so that a deleted file frees its space at once."""

    def __init__(self, path: str, name: str, size: int, *, footer: Footer | None = None) -> None:
        """`footer`: see `KnownEnd`."""
        self.path = path
        self.footer = footer
        self.name = name
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        """Raises OSError; DamagedSegmentError when the file ends before."""
        with closing(LocalFile(self.path)) as file:
            return file.read_at(offset, length)

    def read_into(self, offset: int, room: memoryview) -> None:
        """Raises OSError; DamagedSegmentError when the file ends before."""
        with closing(LocalFile(self.path)) as file:
            file.read_into(offset, room)


class WithEnd:
    """A source with a recorded footer; see `KnownEnd`."""

    def __init__(self, source: ByteSource, footer: Footer | None) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self.footer = footer

    def read_at(self, offset: int, length: int) -> bytes:
        """See `ByteSource`."""
        return self._source.read_at(offset, length)


_ROOM_STEP_BYTES: Final = 4 << 20


class Room:
    """A buffer that reads use again, since new memory costs as much time as the read."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, length: int) -> memoryview:
        """A view of `length` bytes with any content; it overlaps the views returned before."""
        if len(self._memory) < length:
            # Views of the old buffer keep it alive. The buffer grows in steps, as row groups differ a little
            # in size.
            self._memory = bytearray(-(-length // _ROOM_STEP_BYTES) * _ROOM_STEP_BYTES)
        return memoryview(self._memory)[:length]


class Windows:
    """Presents loaded ranges of a source as a file to pyarrow, which reads them piece by piece."""

    def __init__(self, source: ByteSource, room: Room) -> None:
        """`room`: the buffer for reads of files."""
        self._source = source
        self._room = room
        self._windows: list[tuple[int, memoryview]] = []
        self._at = 0
        self.closed = False

    def load(self, ranges: list[tuple[int, int]]) -> None:
        """Loads these ranges (offset, length) in place of the loaded ones."""
        source = self._source
        if not isinstance(source, LocalFile | PathSource):
            self._windows = [
                (offset, memoryview(source.read_at(offset, length))) for offset, length in ranges
            ]
            return
        room = self._room.of(sum(length for _, length in ranges))
        self._windows = []
        for offset, length in ranges:
            source.read_into(offset, room[:length])
            self._windows.append((offset, room[:length]))
            room = room[length:]

    def forget(self) -> None:
        """Releases the loaded ranges."""
        self._windows = []

    def read(self, length: int = -1) -> bytes:
        """See `read_buffer`."""
        return bytes(self.read_buffer(length))

    def read_buffer(self, length: int = -1) -> memoryview:
        """Reads as a view; pyarrow calls this where it can take one. Raises DamagedSegmentError for bytes
        that are not loaded, to which only a damaged footer points."""
        if length < 0:
            length = self._source.size - self._at
        for offset, data in self._windows:
            first = self._at - offset
            if first >= 0 and first + length <= len(data):
                self._at += length
                return data[first : first + length]
        raise DamagedSegmentError(
            f"{self._source.name}: bytes {self._at} to {self._at + length} belong to no column"
        )

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        assert whence in (os.SEEK_SET, os.SEEK_END)
        self._at = offset if whence == os.SEEK_SET else self._source.size + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._source.size

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
