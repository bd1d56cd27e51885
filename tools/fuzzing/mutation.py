"""New inputs from known ones (pure): what chance does to bytes, and what it keeps because it was new."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

_NUMBERS: Final = tuple(
    number.to_bytes(width, "big")
    for width in (1, 2, 4, 8)
    for number in (0, 1, 0x7F, (1 << 8 * width) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1)
)
_POOL_MAX: Final = 500


class Mutator:
    """Inputs without end, the same for the same seed and the same answers to `keep`."""

    def __init__(self, seeds: Sequence[bytes], words: Sequence[bytes], bytes_max: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._pool = [data[:bytes_max] for data in seeds] or [b""]
        self._known = len(self._pool)
        self._words = (*_NUMBERS, *words, *words)
        self._bytes_max = bytes_max

    def keep(self, data: bytes) -> None:
        """An input that did what none did before: further ones begin there too."""
        if len(self._pool) < _POOL_MAX:
            self._pool.append(data)
        else:
            self._pool[self._chance.randrange(self._known, _POOL_MAX)] = data

    def next(self) -> bytes:
        """Another input."""
        chance = self._chance
        data = bytearray(chance.choice(self._pool))
        for _ in range(1 << chance.randrange(4)):
            self._change(data)
        return bytes(data[: self._bytes_max])

    def _change(self, data: bytearray) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.randrange(256)
        elif kind == 2:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 4:
            data[at:at] = data[at : at + chance.randrange(1, 65)] * chance.choice((1, 1, 1, 8))
        elif kind == 5:
            word = chance.choice(self._words)
            data[at : at + len(word)] = word
        elif kind == 6:
            data[at:at] = chance.choice(self._words)
        else:
            other = chance.choice(self._pool)
            start = chance.randrange(len(other) + 1)
            data[at:] = other[start:]
