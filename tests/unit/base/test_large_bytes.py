"""Copies of many megabytes, and memory that is returned beside the event loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from magnetar.base import large_bytes
from magnetar.base.large_bytes import LargeBuffer, as_bytes, joined

ENDS_WITH_ONE = """
from magnetar.base.large_bytes import LargeBuffer
class Holder: pass
holder = Holder()
holder.itself, holder.view = holder, memoryview(LargeBuffer(1 << 20))
"""


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 30])
def test_a_copy_of_several_pieces_is_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bytes, "LARGE_BYTES", 8)
    data = bytearray(range(size))
    for given in (data, memoryview(data)):
        made = as_bytes(given)
        assert type(made) is bytes
        assert made == bytes(range(size))


def test_a_view_keeps_the_memory_and_the_last_one_returns_it_in_another_thread() -> None:
    returned: list[int] = []
    done = threading.Event()

    class Watched(LargeBuffer):
        def close(self) -> None:
            super().close()
            returned.append(threading.get_ident())
            done.set()

    view = memoryview(Watched(10))
    view[:4] = b"abcd"
    kept = view[2:]
    del view
    assert bytes(kept) == b"cd" + bytes(6)
    assert not returned
    del kept
    assert done.wait(60)
    assert returned != [threading.get_ident()]


def test_a_closed_buffer_is_not_closed_again() -> None:
    buffer = LargeBuffer(10)
    buffer.close()
    before = threading.active_count()
    del buffer
    assert threading.active_count() == before


def test_a_process_ends_with_memory_in_a_circle() -> None:
    """It is dropped when threads cannot start any more."""
    done = subprocess.run([sys.executable, "-c", ENDS_WITH_ONE], timeout=60, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("size", [1, 11, 12])
def test_parts_are_joined_in_their_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bytes, "LARGE_BYTES", size)
    parts: list[bytes | memoryview] = [b"ab", memoryview(b"cdefghij"), b"", b"k"]
    made = joined(iter(parts))
    assert type(made) is (memoryview if size <= 11 else bytes)
    assert made == b"abcdefghijk"
