"""Damaged sets of entries: a few bytes may say that billions of entries are acknowledged."""

from __future__ import annotations

import pytest

from magnetar.base.ids import LedgerId
from magnetar.managedlog.cursors.entry_set_codec import MalformedAckedError, decode

FULL_MAX = b"\x80\x80\x80\x02"
"""1 << 22, as a varint."""


def test_full_chunks_are_bounded_over_all_groups_and_ledgers() -> None:
    one, most = b"\x00\x00\x01", b"\x00\x00" + FULL_MAX
    for data in (b"\x07\x02" + one + most, b"\x07\x01" + one + b"\x08\x01" + most):
        with pytest.raises(MalformedAckedError, match="covers 4194304 chunks"):
            decode(data)
    assert decode(b"\x07\x02" + one + one)[LedgerId(7)].chunks.keys() == {0, 1}
