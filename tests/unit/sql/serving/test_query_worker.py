"""The process of a query: pieces of a result, and the end of its broker."""

from __future__ import annotations

import json
import os
import threading

import pyarrow as pa

from magnetar.sql.serving.query_frames import BODY_BYTES_MAX, DATA_BYTES, JSON_LINES
from magnetar.sql.serving.query_worker import _parts, _pieces, said_by_broker


def pieces(*texts: str) -> list[bytes]:
    batch = pa.record_batch({"x": list(texts)})
    return list(_pieces(_parts(JSON_LINES, batch.schema, iter([batch]))))


def test_pieces_have_whole_rows() -> None:
    texts = ["r" * 1000, "s" * (DATA_BYTES - 1), "t" * (BODY_BYTES_MAX - 100), "u"] * 3
    found = pieces(*texts)
    assert len(found) > 3
    assert all(piece.endswith(b"\n") and len(piece) <= BODY_BYTES_MAX for piece in found)
    assert [json.loads(line)["x"] for line in b"".join(found).splitlines()] == texts


def test_a_row_that_is_larger_than_a_frame_is_in_several() -> None:
    text = "r" * (3 * BODY_BYTES_MAX)
    found = pieces("a", text, "b")
    assert all(len(piece) <= BODY_BYTES_MAX for piece in found)
    assert [json.loads(line)["x"] for line in b"".join(found).splitlines()] == ["a", text, "b"]


def test_the_brokers_end_is_told_whatever_is_computed() -> None:
    source, broker = os.pipe()
    gone = threading.Event()
    said = said_by_broker(source, gone.set)
    os.write(broker, b"question\nrea")
    assert next(said) == b"question"
    os.write(broker, b"ding\n")
    assert next(said) == b"reading"
    assert not gone.is_set()
    os.close(broker)
    # No line is asked for: the engine would compute now.
    assert gone.wait(30)
    os.close(source)
