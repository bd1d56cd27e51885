"""Hashes of message keys, and the division of the hash range among consumers.

Hash of an entry (PIP-34, Pulsar 4): Murmur3_32 of the ordering key, else of the partition key (decoded when
it is flagged as base64), else of producer name and sequence id; modulo 65536; 0 becomes 1, because 0 stands
for "no hash".
"""

from __future__ import annotations

import base64
import binascii
import bisect
import itertools
from collections.abc import Sequence
from typing import Final

import mmh3

from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import ConsumerAssignmentError
from magnetar.wire import pulsar_pb2 as pb

RANGE_SIZE: Final = 65_536
"""Hashes are 1 <= h < RANGE_SIZE."""
_RING_POINTS: Final = 100
"""Points of each consumer on the ring (Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints)."""


def key_hash(key: bytes) -> int:
    """Sticky hash of a key, 1..65535."""
    return (mmh3.hash(key, signed=False) % RANGE_SIZE) or 1


def sticky_key(metadata: pb.MessageMetadata) -> bytes:
    """The bytes by which an entry is kept in order."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = _bytes_of(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except (binascii.Error, ValueError):
                return key
        return key
    return b"%b-%d" % (_bytes_of(metadata.producer_name), metadata.sequence_id)


def _bytes_of(text: str | bytes) -> bytes:
    """A text of a message as bytes: protobuf returns bytes when a client wrote invalid UTF-8."""
    return text if isinstance(text, bytes) else text.encode()


class HashRing:
    """AUTO_SPLIT: a consistent-hash ring; a consumer that joins or leaves moves only its share."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: list[list[Consumer]] = []

    def add(self, consumer: Consumer) -> None:
        for point in self._points_of(consumer):
            i = bisect.bisect_left(self._points, point)
            if i < len(self._points) and self._points[i] == point:
                self._owners[i].append(consumer)
            else:
                self._points.insert(i, point)
                self._owners.insert(i, [consumer])

    def remove(self, consumer: Consumer) -> None:
        for point in self._points_of(consumer):
            i = bisect.bisect_left(self._points, point)
            self._owners[i].remove(consumer)
            if not self._owners[i]:
                del self._points[i], self._owners[i]

    def owner(self, key_hash: int) -> Consumer | None:
        """The consumer at the first point at or after the hash, going round."""
        if not self._points:
            return None
        i = bisect.bisect_left(self._points, key_hash)
        return self._owners[i if i < len(self._points) else 0][0]

    @staticmethod
    def _points_of(consumer: Consumer) -> list[int]:
        names = (f"{consumer.name}\0{consumer.consumer_id}\0{i}" for i in range(_RING_POINTS))
        return [key_hash(name.encode()) for name in names]


class StickyRanges:
    """STICKY: each consumer names its own ranges; they must not overlap, gaps wait."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._owners: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        if not consumer.hash_ranges:
            raise ConsumerAssignmentError("Ranges for KeyShared policy must not be empty.")
        for start, end in consumer.hash_ranges:
            if not 0 <= start <= end < RANGE_SIZE:
                raise ConsumerAssignmentError(
                    f"hash range [{start}, {end}] is not within [0, {RANGE_SIZE - 1}]"
                )
            i = bisect.bisect_right(self._starts, end) - 1
            if i >= 0 and self._ends[i] >= start:
                raise ConsumerAssignmentError(
                    f"hash range [{start}, {end}] overlaps [{self._starts[i]}, {self._ends[i]}]"
                    f" of consumer {self._owners[i].name}"
                )
        self._check_own(consumer.hash_ranges)
        for start, end in consumer.hash_ranges:
            i = bisect.bisect_left(self._starts, start)
            self._starts.insert(i, start)
            self._ends.insert(i, end)
            self._owners.insert(i, consumer)

    @staticmethod
    def _check_own(ranges: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        for (_, end), (start, _) in itertools.pairwise(ordered):
            if start <= end:
                raise ConsumerAssignmentError("hash ranges of one consumer overlap each other")

    def remove(self, consumer: Consumer) -> None:
        kept = [i for i, owner in enumerate(self._owners) if owner is not consumer]
        self._starts = [self._starts[i] for i in kept]
        self._ends = [self._ends[i] for i in kept]
        self._owners = [self._owners[i] for i in kept]

    def owner(self, key_hash: int) -> Consumer | None:
        """The consumer whose range contains the hash, if any."""
        i = bisect.bisect_right(self._starts, key_hash) - 1
        return self._owners[i] if i >= 0 and self._ends[i] >= key_hash else None
