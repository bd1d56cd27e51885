"""What a broker and a query's process say to each other."""

from __future__ import annotations

import json

import pytest

from magnetar.sql.serving.query_frames import (
    BODY_BYTES_MAX,
    DATA,
    PREFIX,
    WorkerQuestion,
    WorkerReading,
    frame_of,
    line_of,
    size_of,
)


def test_a_frame_is_kind_size_body() -> None:
    frame = frame_of(DATA, b"rows")
    assert frame == b"D\x00\x00\x00\x04rows"
    assert size_of(frame[: PREFIX.size]) == (DATA, 4)


@pytest.mark.parametrize("prefix", [PREFIX.pack(b"X", 1), PREFIX.pack(DATA, BODY_BYTES_MAX + 1)])
def test_what_no_worker_writes(prefix: bytes) -> None:
    with pytest.raises(ValueError, match="wrote a frame of kind"):
        size_of(prefix)


def test_lines_carry_all_fields_and_their_text_no_secret() -> None:
    question = WorkerQuestion(
        statement="SELECT 'ä\n'", form="json", memory_mib=64, spill_mib=0, seconds_max=1.5, rows_max=3
    )
    line = line_of(question)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert WorkerQuestion(**json.loads(line)) == question
    reading = WorkerReading(
        service_url="pulsar://h:1", admin_url="http://h:2", token="t0ken", password="pass"
    )
    assert WorkerReading(**json.loads(line_of(reading))) == reading
    assert "t0ken" not in repr(reading)
    assert "pass'" not in repr(reading)
