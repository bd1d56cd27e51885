"""The two ends of a segment's bytes: a file that is written and summed up, a file that is read in ranges."""

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
"""Written and on its way to the disk before the next piece begins: a commit of the message store, on the same
disk, waits for so much of this file at most. Pieces of 4 MiB kept commits waiting for ten milliseconds, one
sync of all at the end for tenths of seconds."""

_WRITE_OUT: Final = 1 | 2 | 4
"""Linux: wait for what is being written of a range, begin to write it, wait for it."""


class SummedFile:
    """A new file whose checksum is known when it is complete. pyarrow writes it as any file of Python's; what
    was written waits in memory until `drain`."""

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
        """All of it, in memory."""
        whole = bytes(data)
        self._waiting.append(whole)
        self.crc32c = crc32c_extend(self.crc32c, whole)
        self.size += len(whole)
        return len(whole)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """See `drain`."""

    def drain(self) -> None:
        """Brings what waits to the disk, piece by piece. Raises OSError."""
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
        """Makes the file durable; its folder is the caller's. Raises OSError."""
        self.drain()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._waiting = []
        self._file.close()


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """The same bytes in pieces of about PIECE_BYTES; what is large is not copied."""
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
    """Waits until this range has left the page cache. Raises OSError.

    Linux does so without a commit of the file system's journal, which others wait for; elsewhere all of the
    file is synced.
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
    """The call of the C library, which Python does not have; None where there is none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = call
    return found


class LocalFile:
    """A file of this machine as a source of ranges."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.name = path
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by `close`)
        self.size = os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises DamagedSegmentError when the file ends before."""
        data = os.pread(self._file.fileno(), length, offset)
        while len(data) < length:
            more = os.pread(self._file.fileno(), length - len(data), offset + len(data))
            if not more:
                raise DamagedSegmentError(f"{self.name} ends at byte {offset + len(data)}")
            data += more
        return data

    def read_into(self, offset: int, room: memoryview) -> None:
        """Fills `room`. Raises DamagedSegmentError when the file ends before."""
        while room:
            count = os.preadv(self._file.fileno(), [room], offset)
            if not count:
                raise DamagedSegmentError(f"{self.name} ends at byte {offset}")
            room, offset = room[count:], offset + count

    def close(self) -> None:
        self._file.close()


class PathSource:
    """A segment in a file, opened for each read: a file that is deleted must not keep its space."""

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
    """A source whose end is known; see `KnownEnd`."""

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
    """Memory that is read to again and again: fresh memory costs as much as reading does."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, length: int) -> memoryview:
        """So many bytes, whatever is in them; those that were given before are the same."""
        if len(self._memory) < length:
            # What still looks at the old one keeps it. In steps, as row groups differ a little in size.
            self._memory = bytearray(-(-length // _ROOM_STEP_BYTES) * _ROOM_STEP_BYTES)
        return memoryview(self._memory)[:length]


class Windows:
    """Parts of a source that were read, for pyarrow, which asks for what lies in them piece by piece."""

    def __init__(self, source: ByteSource, room: Room) -> None:
        """`room`: where files are read to."""
        self._source = source
        self._room = room
        self._windows: list[tuple[int, memoryview]] = []
        self._at = 0
        self.closed = False

    def load(self, ranges: list[tuple[int, int]]) -> None:
        """Reads these ranges (offset, length), which replace those before."""
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
        """Gives the memory back, or leaves it to the next one."""
        self._windows = []

    def read(self, length: int = -1) -> bytes:
        """See `read_buffer`."""
        return bytes(self.read_buffer(length))

    def read_buffer(self, length: int = -1) -> memoryview:
        """What pyarrow calls where it can take a view. Raises DamagedSegmentError for bytes that were not
        loaded: the footer points outside of them."""
        if length < 0:
            length = self._source.size - self._at
        for offset, data in self._windows:
            first = self._at - offset
            if first >= 0 and first + length <= len(data):
                self._at += length
                return data[first : first + length]
        raise DamagedSegmentError(
            f"{self._source.name}: bytes {self._at} to {self._at + length} are of no column"
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
