"""Which messages of a topic are the last of their key. Pure: entries in, entries out.

Two passes over the same entries: `see` records the place of each key's last message, `keep` returns the rest
of an entry. A message with an empty payload, or a null value, removes its key.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.ids import Position
from magnetar.base.large_bytes import joined
from magnetar.broker.topic.batches import Singles, open_batch
from magnetar.client.compression import compress
from magnetar.managedlog.cursors.ack_words import ACK_SET_WORDS_MAX
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import (
    EntryError,
    batch_parts,
    build_entry,
    is_batch,
    parse_metadata,
    split_entry,
)

_ENTRY: Final = -1
"""Index of a message that is an entry of its own."""

Place = tuple[Position, int]


PLAIN_BYTES_MAX: Final = 64 << 20
"""A batch that claims to be larger stays as it is: memory is for all. Far above what clients pack."""
HEAVY_BYTES: Final = 256 << 10
"""A compressed batch from this size on is decompressed beside the event loop: about a millisecond of work."""


def is_heavy(entry: bytes) -> bool:
    """Whether opening the entry takes so long that other tasks should run meanwhile."""
    try:
        metadata = parse_metadata(split_entry(entry).metadata)
    except EntryError:
        return False
    size = metadata.uncompressed_size
    return metadata.compression != pb.NONE and is_batch(metadata) and size >= HEAVY_BYTES


def last_index(entry: bytes) -> int:
    """Index in its batch of the last message that is left; -1 for an entry that is not a batch, or
    damaged."""
    try:
        parts = split_entry(entry)
        metadata = parse_metadata(parts.metadata)
    except EntryError:
        return -1
    if not is_batch(metadata):
        return -1
    singles = open_batch(metadata, parts.payload, PLAIN_BYTES_MAX)
    left = [index for index, (single, _) in enumerate(singles or ()) if not single.compacted_out]
    return left[-1] if left else metadata.num_messages_in_batch - 1


def left_in_batch(entry: bytes, count: int) -> int:
    """The remaining messages of a batch of `count`, as bits; 0 when none was removed.

    An entry that compaction left unchanged has the producer's own numbers there, which may be anything.
    """
    try:
        metadata = parse_metadata(split_entry(entry).metadata)
    except EntryError:
        return 0
    end = min(count, 64 * ACK_SET_WORDS_MAX)
    bits = 0
    for index in metadata.compacted_batch_indexes:
        if 0 <= index < end:
            bits |= 1 << index
    return bits


def _key_of(metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> str | None:
    return metadata.partition_key if metadata.HasField("partition_key") else None


class Survivors:
    """The last message of each key."""

    def __init__(self, *, retain_null_key: bool = False) -> None:
        self.retain_null_key = retain_null_key
        self._last: dict[str, Place | str] = {}
        """The place of a key's last message; of a chunked message its uuid."""
        self._open: dict[str, None] = {}
        """Chunked messages whose last chunk was not seen: it may come after the horizon."""
        self._whole: set[Position] = set()
        """Batches that cannot be opened, and damaged entries."""
        self._chunked = False
        self._places: frozenset[Position] | None = None
        """After the first pass: entries that hold the last message of a key."""

    def __len__(self) -> int:
        return len(self._last)

    def see(self, position: Position, entry: bytes) -> None:
        """Records the next entry. A damaged entry stays, as does a batch that cannot be opened."""
        try:
            parts = split_entry(entry)
            metadata = parse_metadata(parts.metadata)
        except EntryError:
            self._whole.add(position)
            return
        if metadata.HasField("marker_type"):
            return
        if is_batch(metadata):
            singles = open_batch(metadata, parts.payload, PLAIN_BYTES_MAX)
            if singles is None:
                self._whole.add(position)
                return
            for index, (single, payload) in enumerate(singles):
                key = _key_of(single)
                if key is not None and not single.compacted_out:
                    self._note(key, (position, index), gone=single.null_value or not payload)
            return
        place: Place | str = (position, _ENTRY)
        if metadata.num_chunks_from_msg > 1:
            self._chunked = True
            if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
                self._open[metadata.uuid] = None
                return
            self._open.pop(metadata.uuid, None)
            place = metadata.uuid
        key = _key_of(metadata)
        if key is not None:
            self._note(key, place, gone=metadata.null_value or _is_empty(metadata, parts.payload))

    def _note(self, key: str, place: Place | str, *, gone: bool) -> None:
        # A batch that cannot be opened stays whole: a message that removes a key must stay behind it, or an
        # older message of the key would come back.
        if gone and not self._whole:
            self._last.pop(key, None)
        else:
            self._last[key] = place

    def keep(self, position: Position, entry: bytes) -> bytes | None:
        """The remaining part of an entry that was seen; None: nothing."""
        if self._is_gone(position):
            return None
        if position in self._whole:
            return entry
        parts = split_entry(entry)
        metadata = parse_metadata(parts.metadata)
        if metadata.HasField("marker_type"):
            return None
        if is_batch(metadata):
            singles = open_batch(metadata, parts.payload, PLAIN_BYTES_MAX)
            return entry if singles is None else self._keep_batch(position, entry, metadata, singles)
        if metadata.num_chunks_from_msg > 1:
            place: Place | str = metadata.uuid
            if metadata.uuid in self._open:
                return entry
        else:
            place = (position, _ENTRY)
        return entry if self._stays(_key_of(metadata), place) else None

    def _is_gone(self, position: Position) -> bool:
        """Whether nothing is left, as far as it can be told without opening the entry."""
        if self.retain_null_key or self._chunked:
            return False
        if self._places is None:
            self._places = frozenset(place[0] for place in self._last.values() if not isinstance(place, str))
        return position not in self._places and position not in self._whole

    def _stays(self, key: str | None, place: Place | str) -> bool:
        return self.retain_null_key if key is None else self._last.get(key) == place

    def _keep_batch(
        self, position: Position, entry: bytes, metadata: pb.MessageMetadata, singles: Singles
    ) -> bytes | None:
        left = [
            index
            for index, (single, _) in enumerate(singles)
            if not single.compacted_out and self._stays(_key_of(single), (position, index))
        ]
        if not left:
            return None
        dropped = set(range(len(singles))).difference(left)
        if all(singles[index][0].compacted_out for index in dropped):
            return entry
        for index in dropped:
            singles[index] = (pb.SingleMessageMetadata(compacted_out=True), b"")
        plain = joined(batch_parts(singles))
        metadata.uncompressed_size = len(plain)
        del metadata.compacted_batch_indexes[:]
        metadata.compacted_batch_indexes.extend(left)
        return build_entry(metadata, compress(metadata.compression, plain))


def _is_empty(metadata: pb.MessageMetadata, payload: memoryview) -> bool:
    if metadata.compression != pb.NONE and metadata.HasField("uncompressed_size"):
        return not metadata.uncompressed_size
    return not len(payload)
