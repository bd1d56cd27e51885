"""Whole chunks, beside and over others."""

from __future__ import annotations

import pytest

from magnetar.managedlog.cursors.entry_set import CHUNK_BITS, EntrySet


@pytest.mark.parametrize(
    "known", [[], [(0, 5)], [(3 * CHUNK_BITS + 7, 3 * CHUNK_BITS + 9)], [(0, 9 * CHUNK_BITS)]]
)
@pytest.mark.parametrize(("number", "count"), [(0, 1), (2, 3), (7, 2)])
def test_whole_chunks_are_added_as_their_entries_would_be(
    known: list[tuple[int, int]], number: int, count: int
) -> None:
    at_once, one_by_one = EntrySet(), EntrySet()
    for made in (at_once, one_by_one):
        for first, last in known:
            made.add_range(first, last)
    at_once.add_full(number, count)
    one_by_one.add_range(number * CHUNK_BITS, (number + count) * CHUNK_BITS - 1)
    assert at_once.chunks == one_by_one.chunks
    assert at_once.count == one_by_one.count
    assert list(at_once.ranges()) == list(one_by_one.ranges())
    at_once.remove_upto(number * CHUNK_BITS + 3)
    one_by_one.remove_upto(number * CHUNK_BITS + 3)
    assert at_once.chunks == one_by_one.chunks
