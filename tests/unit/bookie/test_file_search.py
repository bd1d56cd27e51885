"""Reading a segment's file once, past the page cache: the same bytes on every file system."""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import closing
from pathlib import Path

import pytest

from magnetar.bookie.files import SEARCH_BYTES, Disk, FileSearch

PAGE = mmap.PAGESIZE


class Plain(Disk):
    """A file system whose files cannot be opened past the cache."""

    def open_direct(self, path: Path, access: int = os.O_WRONLY) -> int:
        return os.open(path, access | os.O_CLOEXEC)


@pytest.mark.parametrize("disk", [Disk(), Plain()])
@pytest.mark.parametrize("size", [0, 1, PAGE, 3 * PAGE + 77, SEARCH_BYTES + PAGE, 2 * SEARCH_BYTES + 5])
def test_the_bytes_are_those_of_the_file(tmp_path: Path, disk: Disk, size: int) -> None:
    path = tmp_path / "file"
    content = bytes(number % 251 for number in range(size))
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        with closing(FileSearch(disk, fd, path)) as search:
            for offset in {0, 1, PAGE - 1, PAGE, PAGE + 1, SEARCH_BYTES, max(size - 3, 0), size, size + PAGE}:
                for length in (1, 56, PAGE, SEARCH_BYTES - 1, SEARCH_BYTES):
                    assert search.read(offset, length) == content[offset : offset + length], (offset, length)
    finally:
        os.close(fd)


def test_what_the_cache_alone_has_is_read(tmp_path: Path) -> None:
    """A kill leaves bytes that never reached the device."""
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, 4 * SEARCH_BYTES)
        os.pwrite(fd, b"late", 3 * SEARCH_BYTES + 11)
        with closing(FileSearch(Disk(), fd, path)) as search:
            assert search.read(3 * SEARCH_BYTES, 20)[11:15] == b"late"
    finally:
        os.close(fd)


def test_what_was_never_written_is_not_read(tmp_path: Path) -> None:
    """Pages that were read ahead made the whole rest of a segment look written: half a second of a start."""
    path = tmp_path / "file"
    disk = Disk()
    fd = disk.create(path, 8 * SEARCH_BYTES)
    try:
        if disk.next_data(fd, 0) is not None:
            pytest.skip("this file system does not tell what was never written")
        with closing(FileSearch(disk, fd, path)) as search:
            assert search.read(SEARCH_BYTES, SEARCH_BYTES) == bytes(SEARCH_BYTES)
            assert disk.next_data(fd, 0) is None
    finally:
        os.close(fd)


def test_a_file_system_that_refuses_the_reading_is_read_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not past the cache")

    monkeypatch.setattr("magnetar.bookie.files.os.preadv", refuse)
    fd = os.open(path, os.O_RDONLY)
    try:
        with closing(FileSearch(Disk(), fd, path)) as search:
            assert search.read(17, 50) == bytes(range(17, 67))
    finally:
        os.close(fd)
