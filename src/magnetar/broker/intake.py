"""Bytes that were read from producers and are not durable yet, of all connections together.

Above the limit who sends is not read any more; it goes on once half of it is free.
"""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """A connection."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None:
        """Reads on, unless something else forbids it."""


class Intake:
    """The budget of a broker."""

    __slots__ = ("_paused", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        """Bytes that were read from producers and are not durable yet."""
        self._paused: set[Source] = set()

    def took(self, source: Source, size_bytes: int) -> None:
        """A connection read so many bytes that are not durable yet."""
        self.bytes_used += size_bytes
        if self.bytes_used > self.bytes_max:
            source.pause_reading()
            self._paused.add(source)

    def gave_back(self, size_bytes: int) -> None:
        """So many of these bytes are durable or were refused."""
        self.bytes_used -= size_bytes
        if self._paused and self.bytes_used < self.bytes_max // 2:
            paused, self._paused = self._paused, set()
            for source in paused:
                source.resume_reading()

    def holds(self, source: Source) -> bool:
        """Whether the connection waits for others' bytes to become durable."""
        return source in self._paused
