"""A write that the system takes in parts ends with all bytes in their places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar.bookie.files import Disk


@pytest.mark.parametrize("size", [4, 9_000])
@pytest.mark.parametrize("part", [1, 3, 5, 1 << 20])
def test_parts_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, part: int
) -> None:
    """Small pieces are joined before, large ones are not. The first write takes nearly all of it."""
    pieces = [bytes((number,)) * (size + number) for number in range(1, 4)]
    wanted = b"".join(pieces)
    taken: list[int] = []
    whole = os.pwritev

    def in_parts(fd: int, vector: list[bytes], offset: int) -> int:
        limit = part if taken else max(1, len(wanted) - 3 * part)
        taken.append(whole(fd, [b"".join(vector)[:limit]], offset))
        return taken[-1]

    monkeypatch.setattr(os, "pwritev", in_parts)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        Disk().write(fd, pieces, 7)
        assert os.pread(fd, 1 << 20, 7) == wanted
    finally:
        os.close(fd)
    assert sum(taken) == len(wanted)


def test_a_write_that_takes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, vector, offset: 0)
    with pytest.raises(OSError, match="nothing was written"):
        Disk().write(0, [b"x"], 0)
