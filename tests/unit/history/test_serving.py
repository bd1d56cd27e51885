"""The worker's answers, without a process: a script of frames instead of a socket."""

from __future__ import annotations

import errno
from collections import deque
from pathlib import Path

import pytest

from magnetar.base.entries import EntryRun
from magnetar.base.errors import DiskFullError
from magnetar.history import serving
from magnetar.history.segment_writer import write_segment
from magnetar.history.serving import HistoryConnection, HistoryServer
from magnetar.tiered.parquet import requests
from magnetar.tiered.parquet.frames import RANGE, FrameKind, decode_runs, runs_parts
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError, HistoryError, SegmentOrigin

ORIGIN = SegmentOrigin("persistent://public/default/orders", 5)
RUNS = [EntryRun(5, 0, [b"no entry", b"another"], None, 0, 1_700_000_000_000)]


class Script(HistoryConnection):
    """Gives the frames of a script and keeps what is sent."""

    def __init__(self, frames: list[tuple[FrameKind, bytes]]) -> None:
        self.frames = deque(frames)
        self.sent: list[tuple[FrameKind, bytes]] = []

    def send(self, kind: FrameKind, body: bytes) -> None:
        self.sent.append((kind, body))

    def receive(self) -> tuple[FrameKind, bytes]:
        if not self.frames:
            raise EOFError
        return self.frames.popleft()


def served(*frames: tuple[FrameKind, bytes]) -> list[tuple[FrameKind, bytes]]:
    """What a server sends for these frames, until the other side is gone."""
    script = Script(list(frames))
    HistoryServer(script).serve()
    return script.sent


def convert(path: Path) -> tuple[FrameKind, bytes]:
    return FrameKind.CONVERT, requests.dump({"path": str(path), "origin": requests.dump_origin(ORIGIN)})


def of_source(path: Path | None, size: int, **values: object) -> bytes:
    return requests.dump(
        {
            "name": "object",
            "size": size,
            "path": None if path is None else str(path),
            "footer": None,
            **values,
        }
    )


def test_a_conversion_asks_for_runs(tmp_path: Path) -> None:
    sent = served(convert(tmp_path / "a"), (FrameKind.RUNS, b"".join(runs_parts(RUNS))), (FrameKind.END, b""))
    assert [kind for kind, _ in sent] == [FrameKind.WANT_RUNS, FrameKind.WANT_RUNS, FrameKind.RESULT]


@pytest.mark.parametrize("last", [[(FrameKind.ABORT, b"")], []])
def test_an_unfinished_conversion_leaves_no_file(tmp_path: Path, last: list[tuple[FrameKind, bytes]]) -> None:
    """Given up, or left alone by a process that died."""
    sent = served(convert(tmp_path / "a"), (FrameKind.RUNS, b"".join(runs_parts(RUNS))), *last)
    assert (FrameKind.FAILED in {kind for kind, _ in sent}) == bool(last)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DiskFullError),
        (OSError(errno.EACCES, "Permission denied"), HistoryError),
        (DamagedSegmentError("broken"), DamagedSegmentError),
        (ZeroDivisionError("a bug"), HistoryError),
    ],
)
def test_errors_keep_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, told: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(serving, "write_segment", fail)
    ((kind, body),) = served(convert(tmp_path / "a"))
    assert kind is FrameKind.FAILED
    error = requests.load_error(body)
    assert type(error) is told
    assert str(raised.args[-1]) in str(error)


def test_ranges_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_segment(RUNS, ORIGIN, str(path))
    data = path.read_bytes()
    script = Script(
        [(FrameKind.ENTRIES, of_source(None, len(data), ledger_id=5, first_entry=1, bytes_max=1))]
    )
    server = HistoryServer(script)
    sent = script.sent

    def receive() -> tuple[FrameKind, bytes]:
        if script.frames:
            return script.frames.popleft()
        kind, body = sent[-1]
        if kind is not FrameKind.WANT_BYTES:
            raise EOFError
        offset, length = RANGE.unpack(body)
        return FrameKind.BYTES, data[offset : offset + length]

    script.receive = receive  # type: ignore[method-assign]
    server.serve()
    assert [kind for kind, _ in sent] == [FrameKind.WANT_BYTES, FrameKind.WANT_BYTES, FrameKind.RUNS]
    (run,) = decode_runs(sent[-1][1])
    assert run.entries == [b"another"]


def test_short_reads_are_errors() -> None:
    request = of_source(None, 5000, ledger_id=5, first_entry=0, bytes_max=1)
    for answer in ((FrameKind.BYTES, b"short"), (FrameKind.ABORT, b"")):
        (_, (kind, body)) = served((FrameKind.ENTRIES, request), answer)
        assert kind is FrameKind.FAILED
        assert isinstance(requests.load_error(body), HistoryError)
