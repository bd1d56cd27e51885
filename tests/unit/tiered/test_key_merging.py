"""Which copies get a directory of keys."""

from __future__ import annotations

from magnetar.tiered.key_merging import blocks_to_merge


def merged(count: int) -> list[int]:
    """Blocks after so many copies, newest first."""
    blocks: list[int] = []
    for _ in range(count):
        taken = blocks_to_merge(blocks)
        blocks = [1 + sum(blocks[:taken]), *blocks[taken:]]
    return blocks


def test_blocks_grow_by_powers_of_four() -> None:
    assert merged(3) == [1, 1, 1]
    assert merged(4) == [4]
    assert merged(15) == [1, 1, 1, 4, 4, 4]
    assert merged(16) == [16]
    assert merged(200) == [4, 4, 64, 64, 64]


def test_there_are_few_blocks_however_many_copies() -> None:
    assert all(len(merged(count)) <= 3 * 5 for count in range(1, 1000, 37))
    assert all(sum(merged(count)) == count for count in range(1, 200, 13))


def test_what_failed_once_is_made_up_for() -> None:
    """A directory that could not be made leaves smaller blocks, which the next one takes."""
    assert blocks_to_merge([1, 1, 1, 1, 1, 4, 4]) == 6
    assert blocks_to_merge([2, 1, 1]) == 0
    assert blocks_to_merge([1, 1, 1, 2, 3, 4]) == 6
