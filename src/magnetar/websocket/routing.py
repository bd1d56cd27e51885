"""Chooses the partition of a message (pure).

By default all messages without a key go to one partition. Source: the hashes of Pulsar's clients.
"""

from __future__ import annotations

import mmh3


class Routing:
    """The routing of one producer."""

    def __init__(self, partitions: int, *, murmur: bool, round_robin: bool, first: int) -> None:
        """`first`: any number; it selects the partition of messages without a key, with `round_robin` the
        first one."""
        self._partitions = partitions
        self._murmur = murmur
        self._step = int(round_robin)
        self._next = first % partitions

    def partition_of(self, key: str | None) -> int:
        """The partition, from 0, for a key; None: no key."""
        if key is not None:
            number = mmh3.hash(key.encode(), signed=False) if self._murmur else java_hash(key)
            return (number & 0x7FFFFFFF) % self._partitions
        partition = self._next
        self._next = (partition + self._step) % self._partitions
        return partition


def java_hash(text: str) -> int:
    """Java's `String.hashCode` without its sign."""
    data, value = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
