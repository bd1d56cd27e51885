"""The last that an instance has written to its standard output and error (pure)."""

from __future__ import annotations

from typing import Final

from magnetar.functions.ports import OutputPart

BYTES_MAX: Final = 64 << 10
"""Most bytes that are kept of an instance."""


class OutputLog:
    """What was written, over all processes of an instance; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._kept = b""
        self._begin = 0
        """Bytes before `_kept` since the first process."""

    def add(self, data: bytes) -> None:
        """An instance has written."""
        kept = self._kept + data
        left = kept[-BYTES_MAX:]
        self._begin += len(kept) - len(left)
        self._kept = left

    def part(self, start: int) -> OutputPart:
        """What was written from byte `start` on, as far as it is kept; all that is kept when there were never
        so many, as after a start of the server."""
        end = self._begin + len(self._kept)
        if not self._begin <= start <= end:
            start = self._begin
        return OutputPart(start, end, self._kept[start - self._begin :])

    def last(self, count: int) -> str:
        """The last so many bytes as text."""
        return self._kept[-count:].decode(errors="replace")
