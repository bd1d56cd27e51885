"""BookKeeper's packets: what is written is read, in any pieces; bytes of chance close the connection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.bookkeeper.availability import decode_entries, encode_entries
from magnetar.wire.bookkeeper.bookie import BookieParser
from magnetar.wire.bookkeeper.bookie_client import BookieClientParser, encode_request
from magnetar.wire.bookkeeper.digests import Digester, DigestType
from magnetar.wire.bookkeeper.requests import AddRun, BatchRead, Read
from magnetar.wire.frames import FrameError

ids = st.integers(0, (1 << 63) - 1)
keys = st.binary(min_size=20, max_size=20)


def add(ledger_id: int, entry_id: int, key: bytes, payload: bytes) -> AddRun:
    run = AddRun(ledger_id, key)
    run.entry_ids.append(entry_id)
    run.entries.append(Digester(ledger_id, DigestType.CRC32C).seal(entry_id, -1, 0, payload) + payload)
    return run


requests = st.one_of(
    st.builds(add, ids, ids, keys, st.binary(max_size=60)),
    st.builds(Read, ids, ids),
    st.builds(Read, ids, st.just(-1), fence=st.just(True), master_key=keys),
    st.builds(BatchRead, ids, ids, ids, st.integers(0, 1 << 30), ids),
)


@given(st.lists(requests, max_size=8), st.lists(st.integers(1, 50), max_size=30))
def test_requests_survive_any_pieces(asked: list[AddRun | Read | BatchRead], sizes: list[int]) -> None:
    data = b"".join(piece for request in asked for piece in encode_request(request, is_v2=True))
    parser = BookieParser()
    seen: list[tuple[object, ...] | object] = []
    waiting = b""
    for size in [*sizes, len(data)]:
        waiting, data = waiting + data[:size], data[size:]
        found, consumed = parser.parse(waiting, len(waiting))
        waiting = waiting[consumed:]
        seen += found
    assert waiting == b""
    rows = [
        row for one in seen if isinstance(one, AddRun) for row in zip(one.entry_ids, one.entries, strict=True)
    ]
    asked_rows = [
        row
        for one in asked
        if isinstance(one, AddRun)
        for row in zip(one.entry_ids, one.entries, strict=True)
    ]
    assert sorted(rows) == sorted(asked_rows)
    assert [one for one in seen if not isinstance(one, AddRun)] == [
        one for one in asked if not isinstance(one, AddRun)
    ]


@given(st.binary(max_size=200), st.booleans())
def test_bytes_of_chance(data: bytes, as_client: bool) -> None:
    parser = BookieClientParser(is_v2=True, packet_bytes_max=150) if as_client else BookieParser(150)
    try:
        _, consumed = parser.parse(data, len(data))
    except FrameError:
        return
    assert 0 <= consumed <= len(data)


@given(st.sets(st.integers(0, 300), max_size=120))
def test_lists_of_entries(held: set[int]) -> None:
    runs: list[range] = []
    for entry in sorted(held):
        if runs and runs[-1].stop == entry:
            runs[-1] = range(runs[-1].start, entry + 1)
        else:
            runs.append(range(entry, entry + 1))
    assert list(decode_entries(encode_entries(runs))) == runs
