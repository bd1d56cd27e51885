from __future__ import annotations

import struct

import pytest

from magnetar.base.errors import ProtocolError
from magnetar.wire.bookkeeper.availability import decode_entries, encode_entries

HEAD = struct.Struct(">ii56x")
GROUP = struct.Struct(">qqii")


def listed(*groups: tuple[int, int, int, int], version: int = 0, count: int | None = None) -> bytes:
    head = HEAD.pack(version, len(groups) if count is None else count)
    return head + b"".join(GROUP.pack(*group) for group in groups)


def test_a_striped_ledger_is_one_group() -> None:
    data = encode_entries([range(at, at + 2) for at in range(0, 30_000, 3)])
    assert len(data) == HEAD.size + GROUP.size
    assert sum(map(len, decode_entries(data))) == 20_000


def test_a_run_too_long_for_one_sequence_becomes_several() -> None:
    run = range(5, 5 + (1 << 31) + 7)
    runs = list(decode_entries(encode_entries([run])))
    assert [(part.start, part.stop) for part in runs] == [
        (5, 5 + (1 << 31) - 1),
        (5 + (1 << 31) - 1, run.stop),
    ]


def test_few_bytes_that_stand_for_very_many_runs_are_not_unfolded_at_once() -> None:
    runs = decode_entries(listed((0, (1 << 62), 1, 1 << 30)))
    assert next(runs) == range(1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0" * 63, "63 bytes"),
        (listed(version=1), "version 1"),
        (listed(count=1), "cannot hold 1 groups"),
        (listed(count=-1), "cannot hold -1 groups"),
        (listed((-1, -1, 1, 0)), "damaged group"),
        (listed((0, 0, 0, 0)), "damaged group"),
        (listed((0, 5, 1, 0)), "damaged group"),
        (listed((5, 0, 1, 5)), "damaged group"),
        (listed((0, 5, 1, 2)), "damaged group"),
        (listed((0, 4, 3, 2)), "damaged group"),
        (listed((0, 4, 1, -2)), "damaged group"),
        (listed((0, (1 << 63) - 1, 1, 1)), "damaged group"),
    ],
)
def test_damage_is_found_at_once(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_entries(data)
