"""Copies of many megabytes."""

from __future__ import annotations

import pytest

from magnetar.base import large_bytes
from magnetar.base.large_bytes import as_bytes


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 30])
def test_a_copy_of_several_pieces_is_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_bytes, "_LARGE_BYTES", 8)
    data = bytearray(range(size))
    for given in (data, memoryview(data)):
        made = as_bytes(given)
        assert type(made) is bytes
        assert made == bytes(range(size))
