"""A cache of the newest entries, for keys that clients choose."""

from __future__ import annotations

from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The entries that were put last, at most `entries_max`.

    A full cache drops its older half at once, so that a put is cheap on average; it never holds fewer than
    half of `entries_max` after that.
    """

    __slots__ = ("_entries", "_entries_max")

    def __init__(self, entries_max: int) -> None:
        """`entries_max`: at least 2."""
        self._entries_max = entries_max
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Stores the value as the newest entry."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._entries_max:
            for old in list(islice(self._entries, self._entries_max // 2)):
                del self._entries[old]
        self._entries[key] = value

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
