"""What was read of a WebSocket, a few frames at a time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.websocket.pieces import FRAMES_MAX, SocketPieces
from support.cases import cases


def _frame(size: int, *, masked: bool) -> bytes:
    if size < 126:
        head = bytes((0x82, size))
    elif size < 1 << 16:
        head = bytes((0x82, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x82, 127)) + size.to_bytes(8, "big")
    if masked:
        head = bytes((head[0], head[1] | 0x80)) + head[2:] + b"mask"
    return head + b"\xff" * size


def _taken(pieces: SocketPieces) -> list[tuple[bytes, int]]:
    taken = []
    while pieces:
        piece = pieces.next()
        assert piece
        taken.append((piece, pieces.frames))
    return taken


@settings(max_examples=cases(100))
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536]), st.booleans()), max_size=60),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=5),
)
def test_every_byte_is_handed_on_and_each_piece_begins_few_frames(
    frames: list[tuple[int, bool]], reads: list[int]
) -> None:
    data = b"".join(_frame(size, masked=masked) for size, masked in frames)
    pieces, taken, at, number = SocketPieces(), list[tuple[bytes, int]](), 0, 0
    while at < len(data):
        size = reads[number % len(reads)]
        pieces.add(data[at : at + size])
        at, number = at + size, number + 1
        taken += _taken(pieces)
    assert b"".join(piece for piece, _ in taken) == data
    assert sum(count for _, count in taken) == len(frames)
    assert all(count <= FRAMES_MAX for _, count in taken)


def test_what_is_read_meanwhile_comes_behind() -> None:
    ping = b"\x89\x80mask"
    pieces = SocketPieces()
    pieces.add(ping * 20)
    assert pieces.next() == ping * FRAMES_MAX
    pieces.add(ping * 10)
    assert [piece for piece, _ in _taken(pieces)] == [ping * 14]


def test_one_large_frame_is_one_piece() -> None:
    frame = _frame(300_000, masked=True)
    pieces = SocketPieces()
    pieces.add(frame[:200_000])
    assert pieces.next() == frame[:200_000]
    pieces.add(frame[200_000:])
    assert _taken(pieces) == [(frame[200_000:], 0)]


def test_what_was_cleared_is_gone() -> None:
    pieces = SocketPieces()
    pieces.add(b"\x89\x80")
    pieces.clear()
    assert not pieces
