"""The two ends of a segment's bytes: a file that is written and summed up, a file that is read in ranges."""

from __future__ import annotations

import os
from typing import BinaryIO, Final

from magnetar.tiered.parquet.api import ByteSource, DamagedSegmentError
from magnetar.wire.checksum import crc32c_extend

SYNC_BYTES: Final = 4 << 20
"""Written before the next sync: the disk never has more waiting of this file, so that a commit of the message
store, on the same disk, waits for so much at most. One sync of all at the end kept commits waiting for tenths
of seconds."""


class SummedFile:
    """A new file whose checksum is known when it is complete. pyarrow writes it as any file of Python's."""

    def __init__(self, path: str) -> None:
        """Raises FileExistsError and other OSErrors."""
        self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115  (closed by `close`)
        self.crc32c = 0
        self.size = 0
        self._unsynced_bytes = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """All of it. Raises OSError."""
        whole = bytes(data)
        view = memoryview(whole)
        while view:
            view = view[self._file.write(view) :]
        self.crc32c = crc32c_extend(self.crc32c, whole)
        self.size += len(whole)
        self._unsynced_bytes += len(whole)
        if self._unsynced_bytes >= SYNC_BYTES:
            os.fdatasync(self._file.fileno())
            self._unsynced_bytes = 0
        return len(whole)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing waits here."""

    def sync(self) -> None:
        """Makes the file durable; its folder is the caller's. Raises OSError."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


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

    def close(self) -> None:
        self._file.close()


class Windows:
    """Parts of a source that were read, for pyarrow, which asks for what lies in them piece by piece."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._windows: list[tuple[int, bytes]] = []
        self._at = 0
        self.closed = False

    def load(self, ranges: list[tuple[int, int]]) -> None:
        """Reads these ranges (offset, length), which replace those before."""
        self._windows = [(offset, self._source.read_at(offset, length)) for offset, length in ranges]

    def forget(self) -> None:
        """Gives the memory back."""
        self._windows = []

    def read(self, length: int = -1) -> bytes:
        """Raises DamagedSegmentError for bytes that were not loaded: the footer points outside of them."""
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
