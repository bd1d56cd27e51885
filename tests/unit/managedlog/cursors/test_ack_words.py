"""Bit sets of batches: the protocol's words and one integer."""

from __future__ import annotations

import pytest

from magnetar.managedlog.cursors.ack_words import bits_of_words, words_of_bits


@pytest.mark.parametrize(
    ("words", "bits"),
    [
        ((), 0),
        ((5,), 5),
        # Protobuf carries signed words.
        ((-1,), (1 << 64) - 1),
        ((-1, -1), (1 << 128) - 1),
        ((0, 1), 1 << 64),
        ((7, 0, 1 << 63), (1 << 191) | 7),
    ],
)
def test_words_are_one_number_and_back(words: tuple[int, ...], bits: int) -> None:
    assert bits_of_words(words) == bits
    assert words_of_bits(bits) == tuple(word % (1 << 64) for word in words)


def test_zero_words_at_the_end_are_left_out() -> None:
    assert bits_of_words((3, 0)) == bits_of_words((3,)) == 3
    assert words_of_bits(bits_of_words((0,))) == ()
