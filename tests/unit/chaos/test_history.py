"""Events and messages are written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.history import Event, Id, Recorder, Value, events, line


def test_a_message_says_what_it_is() -> None:
    value = Value("c1", 1234)
    assert Value.of(value.payload) == value
    assert len(value.payload) == 100


@pytest.mark.parametrize("payload", [b"", b"c1 7", b"c1 7 xyz", b"c1 seven x", b"\xff\xfe \xff \xff"])
def test_other_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not the bytes of a message"):
        Value.of(payload)


def test_events_come_back_by_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.history", tmp_path / "b.history"
    written = [
        Event(1.5, "acked", "plain-1", "c1", Value("c1", 1), Id(3, 4, -1, -1)),
        Event(0.5, "error", "", "c1", note="receiving: Timeout"),
    ]
    first.write_text("".join(map(line, written)), encoding="utf-8")
    recorder = Recorder(second)
    recorder.add(Event(1.0, "sent", "plain-1", "c1", Value("c1", 1)))
    recorder.note("served", "plain-1", "b1")
    recorder.close()
    found = events([first, second])
    assert [each.at_s for each in found[:3]] == [0.5, 1.0, 1.5]
    assert found[0] == written[1]
    assert found[2] == written[0]
    assert found[3].kind == "served"


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.history"
    whole = line(Event(1.0, "served", "plain-1", "b1"))
    path.write_text(whole + whole[:10], encoding="utf-8")
    assert len(events([path])) == 1
