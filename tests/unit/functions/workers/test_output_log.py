"""The last that an instance has written."""

from __future__ import annotations

from magnetar.functions.ports import OutputPart
from magnetar.functions.workers.output_log import BYTES_MAX, OutputLog


def test_a_part_begins_where_it_is_asked_for() -> None:
    log = OutputLog()
    log.add(b"abc")
    log.add(b"def")
    assert log.part(0) == OutputPart(0, 6, b"abcdef")
    assert log.part(4) == OutputPart(4, 6, b"ef")
    assert log.part(6) == OutputPart(6, 6, b"")
    assert log.last(2) == "ef"


def test_the_oldest_is_forgotten() -> None:
    log = OutputLog()
    log.add(b"x" * BYTES_MAX)
    log.add(b"end")
    assert log.part(0) == OutputPart(3, BYTES_MAX + 3, b"x" * (BYTES_MAX - 3) + b"end")
    assert log.part(BYTES_MAX).data == b"end"


def test_who_asks_for_what_was_never_written_gets_all() -> None:
    """A server that started anew has written less than it had before."""
    log = OutputLog()
    log.add(b"abc")
    assert log.part(99) == OutputPart(0, 3, b"abc")
