"""Ledger ids: strictly increasing, never assigned twice, reserved in ranges."""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.metadata.documents import DamagedDocumentError, number_of

RANGE_SIZE: Final = 256
"""Ids reserved by one write. The rest of a range is lost when the process ends."""
FIRST_ID: Final = LedgerId(1)
_START_MAX: Final = (1 << 63) - RANGE_SIZE


class IdRange:
    """The reserved ids that are not assigned yet."""

    __slots__ = ("_end", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def take(self) -> LedgerId | None:
        """The next id; None when a new range must be reserved first."""
        if self._next == self._end:
            return None
        self._next += 1
        return LedgerId(self._next - 1)

    def reserved(self, start: int) -> None:
        """The RANGE_SIZE ids from `start` on belong to this process."""
        assert self._next == self._end <= start
        self._next, self._end = start, start + RANGE_SIZE


def decode_reserved(value: bytes | None, path: str) -> LedgerId:
    """First unreserved id, from the generator's value. Raises DamagedDocumentError when it is not a number,
    or leaves no range."""
    if value is None or not value:
        return FIRST_ID
    start = number_of(path, value)
    if start > _START_MAX:
        raise DamagedDocumentError(path, "no ids are left above it")
    return LedgerId(start)


def encode_reserved(end: int) -> bytes:
    """The generator's value when all ids below `end` are reserved."""
    return str(end).encode()
