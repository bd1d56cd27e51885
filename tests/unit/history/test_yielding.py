"""Conversions behind all other work, and the file that they write piece by piece."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.history import yielding
from magnetar.history.files import PIECE_BYTES, SummedFile, write_out
from magnetar.history.manners import AtOnce
from magnetar.history.yielding import AWAKE_PARTS, STARVED_S, Yielding, starved
from magnetar.wire.checksum import crc32c


def test_parts_are_computed_behind_everyone() -> None:
    manners = Yielding()
    assert manners.compute(threading.get_ident) != threading.get_ident()
    if hasattr(os, "SCHED_IDLE"):
        assert manners.compute(lambda: os.sched_getscheduler(0)) == os.SCHED_IDLE
        assert os.sched_getscheduler(0) != os.SCHED_IDLE


def test_what_a_part_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Yielding().compute(lambda: 1 // 0)


def test_where_others_leave_no_core_parts_do_not_go_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part behind eight busy loops took more than a quarter of an hour."""
    now_s = 100.0
    idle_s: float | None = 7.0
    monkeypatch.setattr(yielding.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(yielding, "idle_s", lambda: idle_s)
    manners = Yielding()

    def is_here() -> bool:
        return manners.compute(threading.get_ident) == threading.get_ident()

    assert not is_here(), "nothing is known yet"
    now_s += 1
    assert [is_here() for _ in range(AWAKE_PARTS)] == [True] * AWAKE_PARTS
    now_s += 1
    idle_s += 0.2
    assert not is_here(), "a fifth of a core was left"
    now_s += 1
    manners._used_s = 0.2
    assert not is_here(), "what was left, its own parts took"
    now_s += 1
    assert is_here()
    monkeypatch.setattr(yielding, "idle_s", lambda: None)
    silent = Yielding()
    now_s += 1
    assert silent.compute(threading.get_ident) != threading.get_ident(), "the system does not say"


def test_the_system_says_how_long_it_was_idle() -> None:
    said = yielding.idle_s()
    assert said is None or said >= 0
    assert (said is None) == (not Path("/proc/stat").exists())


def test_who_was_starved_goes_on_at_its_own_priority_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    manners = Yielding()
    monkeypatch.setattr(yielding, "starved", lambda taken_s, used_s: True)
    manners.compute(threading.get_ident)
    monkeypatch.undo()
    here = [manners.compute(threading.get_ident) == threading.get_ident() for _ in range(AWAKE_PARTS + 1)]
    assert here == [True] * AWAKE_PARTS + [False]


@pytest.mark.parametrize(
    ("taken_s", "used_s", "is_starved"),
    [
        (0.04, 0.04, False),
        (STARVED_S, 0.0, False),
        (2 * STARVED_S, STARVED_S, False),
        (5 * STARVED_S, 0.1 * STARVED_S, True),
    ],
)
def test_starving(taken_s: float, used_s: float, is_starved: bool) -> None:
    assert starved(taken_s, used_s) is is_starved


class Counting(AtOnce):
    """Counts the pieces that go to the disk."""

    written = 0

    def write(self, part: Callable[[], None]) -> None:
        self.written += 1
        part()


def test_a_file_goes_to_the_disk_in_small_pieces(tmp_path: Path) -> None:
    manners = Counting()
    file = SummedFile(str(tmp_path / "a"), manners)
    data = bytes(range(256)) * (PIECE_BYTES // 100)
    file.write(data)
    assert (file.tell(), manners.written, (tmp_path / "a").stat().st_size) == (len(data), 0, 0)
    file.drain()
    assert manners.written == -(-len(data) // PIECE_BYTES)
    file.write(b"the end")
    file.sync()
    file.close()
    assert (tmp_path / "a").read_bytes() == data + b"the end"
    assert (file.size, file.crc32c) == (len(data) + 7, crc32c(data + b"the end"))


def test_a_range_is_written_out_of_files_only(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"data")
        file.flush()
        write_out(file.fileno(), 0, 4)
    with pytest.raises(OSError, match="file descriptor"):
        write_out(file.fileno() if not file.closed else -1, 0, 4)
