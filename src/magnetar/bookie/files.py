"""The segment store's access to the disk: one small port, so that tests can inject failures."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final

from magnetar.base.errors import DiskFullError, StorageError, StorageFailedError
from magnetar.runtime.durable_file import sync_folder

_IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
_JOIN_PIECE_BYTES: Final = 4096
"""Pieces below this mean size are joined: one copy costs less than that many vectors."""
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
SEARCH_BYTES: Final = 1 << 20
"""Bytes per read of a `FileSearch`: few enough to stay in a core's cache while they are searched."""
ZEROS_BYTES_MAX: Final = 512 << 10
"""Bytes of zeros per write: less than a millisecond of the device's time."""


def storage_error(error: OSError, folder: Path, action: str) -> StorageError:
    """The storage error of an OSError; its message names the folder and the operation."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFullError(f"no space in {folder} to {action}: free space there, or use a larger disk")
    return StorageFailedError(f"cannot {action} in {folder}: {error}")


def _advise(fd: int, what: str) -> None:
    """Advises the system how a file is read, where it supports that."""
    if (advice := getattr(os, what, None)) is not None:
        os.posix_fadvise(fd, 0, 0, advice)


def _behind(pieces: list[bytes], count: int) -> list[bytes]:
    """What follows the first `count` bytes of all pieces."""
    at = 0
    while count >= len(pieces[at]):
        count -= len(pieces[at])
        at += 1
    return [pieces[at][count:], *pieces[at + 1 :]]


class Disk:
    """Files of the operating system. Everything raises OSError."""

    def create(self, path: Path, size: int) -> int:
        """Creates a file with `size` bytes allocated, open for reading and writing."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.allocate(fd, size)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        return fd

    def allocate(self, fd: int, size: int) -> None:
        """Allocates `size` bytes for a file; existing bytes stay."""
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # The file system cannot allocate ahead: it finds blocks during writes.
            os.ftruncate(fd, size)

    def write(self, fd: int, pieces: list[bytes], offset: int) -> None:
        """Writes all pieces one after the other from `offset` on."""
        total = sum(map(len, pieces))
        if len(pieces) > 1 and total < len(pieces) * _JOIN_PIECE_BYTES:
            pieces = [b"".join(pieces)]
        while True:
            written = os.pwritev(fd, pieces[:_IOV_MAX], offset)
            if written == total:
                return
            if written <= 0:
                raise OSError(errno.EIO, "nothing was written")
            offset += written
            total -= written
            pieces = _behind(pieces, written)

    def open_direct(self, path: Path, access: int = os.O_WRONLY) -> int:
        """Opens a file for `write_zeros` or a `FileSearch`, past the page cache where the system supports
        that."""
        flags = access | os.O_CLOEXEC
        try:
            return os.open(path, flags | _DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(path, flags)

    def write_zeros(self, fd: int, offset: int, size: int) -> int:
        """Writes zeros over whole pages; `size` is at most ZEROS_BYTES_MAX. Returns the bytes written."""
        # From a mapping, because that is aligned to a page.
        with mmap.mmap(-1, size) as zeros:
            return os.pwrite(fd, zeros, offset)

    def free_bytes(self, folder: Path) -> int:
        """Free bytes in the file system of a folder."""
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def sync(self, fd: int) -> None:
        """Makes the file's bytes durable."""
        os.fdatasync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in a folder durable."""
        sync_folder(folder)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """The bytes, fewer only at the end of the file. May block on the device."""
        data = os.pread(fd, length, offset)
        while 0 < len(data) < length:
            more = os.pread(fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_now(self, fd: int, offset: int, length: int) -> bytes | None:
        """The bytes if all of them are in the page cache; else None."""
        if not _NOWAIT:
            return None
        buffer = bytearray(length)
        try:
            number = os.preadv(fd, [buffer], offset, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise
        return bytes(buffer) if number == length else None

    def next_data(self, fd: int, offset: int) -> int | None:
        """The first offset from there on outside a hole; None when only a hole follows."""
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset


class FileSearch:
    """Reads a file once, from front to end, without filling the page cache.

    Memory that a virtual machine has not used yet is expensive, and the page cache takes it even for zeros of
    bytes that were never written: 256 MiB cost half a second. Past the cache they cost the device's time or
    nothing. Read-ahead is off while a search is open: pages that were read ahead would also hide from
    `Disk.next_data` that nothing was ever written there. Raises OSError.
    """

    def __init__(self, disk: Disk, fd: int, path: Path) -> None:
        """`fd`: a descriptor of the same file, for file systems without direct access."""
        self._disk = disk
        self._fd = fd
        self._direct = disk.open_direct(path, os.O_RDONLY)
        self._pages = mmap.mmap(-1, SEARCH_BYTES + 2 * mmap.PAGESIZE)
        _advise(fd, "POSIX_FADV_RANDOM")

    def read(self, offset: int, length: int) -> bytes:
        """The bytes, fewer only at the end of the file; `length` is at most SEARCH_BYTES."""
        assert 0 <= length <= SEARCH_BYTES, length
        skipped = offset % mmap.PAGESIZE
        wanted = -(-(skipped + length) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            with memoryview(self._pages)[:wanted] as target:
                count = os.preadv(self._direct, [target], offset - skipped)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return self._disk.read(self._fd, offset, length)
        if count < skipped + length and count % mmap.PAGESIZE == 0:
            # A short read before the end of the file.
            return self._disk.read(self._fd, offset, length)
        return self._pages[skipped : min(count, skipped + length)]

    def close(self) -> None:
        """Frees its memory and descriptor."""
        _advise(self._fd, "POSIX_FADV_NORMAL")
        self._pages.close()
        os.close(self._direct)


class VolatileDisk(Disk):
    """A disk whose syncs return at once."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass
