"""The unacknowledged messages of a batch, as the protocol's 64-bit words and as one integer."""

from __future__ import annotations

from collections.abc import Sequence

WORD_BITS = 64
WORD_MASK = (1 << WORD_BITS) - 1
ACK_SET_WORDS_MAX = 16_384
"""Words of a batch's bit set that are read: a million messages, more than fit a batch. A client's claim
beyond that must not fill memory."""


def bits_of_words(words: Sequence[int]) -> int:
    """One integer from 64-bit words, lowest first. Also accepts signed words, as protobuf carries them."""
    if len(words) == 1:
        # Nearly all batches have 64 messages at most.
        return words[0] & WORD_MASK
    data = b"".join((word & WORD_MASK).to_bytes(8, "little") for word in words)
    return int.from_bytes(data, "little")


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The inverse of `bits_of_words`, unsigned, without zero words at the end (as a Java BitSet)."""
    if 0 <= bits <= WORD_MASK:
        return (bits,) if bits else ()
    count = -(-bits.bit_length() // WORD_BITS)
    data = bits.to_bytes(8 * count, "little")
    return tuple(int.from_bytes(data[at : at + 8], "little") for at in range(0, 8 * count, 8))
