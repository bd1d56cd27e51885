"""Finds the messages of a batch in one pass over its payload, without a copy.

    (size u32 | SingleMessageMetadata | payload of `payload_size` bytes)*

Messages of equal size, which are common, are found by arithmetic and a comparison of their size bytes; others
by walking from one to the next.

Source: Pulsar binary protocol, batch messages.
"""

from __future__ import annotations

from typing import Final, NamedTuple, overload

import numpy as np

from magnetar.arrow.fields import Bytes, Ints
from magnetar.client.errors import PayloadError
from magnetar.wire.frames import read_varint

_UNIFORM_COUNT_MIN: Final = 4
"""Fewest messages for the arithmetic way; with fewer, walking is as fast."""

PAYLOAD_SIZE_TAG: Final = 0x18
_SHORT_TAGS: Final = b"\x0a\x12"
"""Properties and key."""


class BatchSpans(NamedTuple):
    """For each message the offsets of its metadata, its payload and the payload's end."""

    metadata: Ints
    payload: Ints
    end: Ints


@overload
def batch_spans(data: bytes, array: Bytes, start: int, end: int, count: int) -> BatchSpans: ...


@overload
def batch_spans(
    data: bytes, array: Bytes, start: int, end: int, count: int, *, walk: bool
) -> BatchSpans | None: ...


def batch_spans(
    data: bytes, array: Bytes, start: int, end: int, count: int, *, walk: bool = True
) -> BatchSpans | None:
    """The `count` messages of the batch in `data[start:end]`; `array`: the same buffer.

    None when a walk is needed and `walk` is False.

    Raises PayloadError when the batch is cut off or malformed.
    """
    found = _uniform(data, array, start, end, count)
    return _walk(data, start, end, count) if found is None and walk else found


def _uniform(data: bytes, array: Bytes, start: int, end: int, count: int) -> BatchSpans | None:
    """All messages if they have one size and the same layout up to the payload's size; else None."""
    if count < _UNIFORM_COUNT_MIN or end - start < 8:
        return None
    metadata_at = start + 4
    payload_at = metadata_at + int.from_bytes(data[start:metadata_at], "big")
    if payload_at > end:
        return None
    size, fixed = payload_size(data, metadata_at, payload_at)
    stride = payload_at + size - start
    if stride * count != end - start:
        return None
    matrix = array[start:end].reshape(count, stride)
    columns = [place - start for place in fixed]
    if not ((matrix[:, :4] == matrix[0, :4]).all() and (matrix[:, columns] == matrix[0, columns]).all()):
        return None
    starts = np.arange(start, end, stride, dtype=np.int64)
    return BatchSpans(starts + 4, starts + (payload_at - start), starts + stride)


def _walk(data: bytes, start: int, end: int, count: int) -> BatchSpans:
    """All messages, one after the other."""
    metadata: list[int] = []
    payload: list[int] = []
    ends: list[int] = []
    at = start
    for _ in range(count):
        metadata_at = at + 4
        payload_at = metadata_at + int.from_bytes(data[at:metadata_at], "big")
        if payload_at > end:
            raise PayloadError(f"a batch of {count} messages ends in the metadata of message {len(ends)}")
        # Usually the metadata has the payload's size in one or two bytes, after properties and key.
        place = metadata_at
        while place < payload_at and data[place] in _SHORT_TAGS and data[place + 1] < 0x80:
            place += 2 + data[place + 1]
        if place + 1 < payload_at and data[place] == PAYLOAD_SIZE_TAG and data[place + 1] < 0x80:
            size = data[place + 1]
        elif place + 2 < payload_at and data[place] == PAYLOAD_SIZE_TAG and data[place + 2] < 0x80:
            size = data[place + 1] - 0x80 + (data[place + 2] << 7)
        else:
            size, _ = payload_size(data, metadata_at, payload_at)
        at = payload_at + size
        if at > end:
            raise PayloadError(f"a batch of {count} messages ends in the payload of message {len(ends)}")
        metadata.append(metadata_at)
        payload.append(payload_at)
        ends.append(at)
    return BatchSpans(
        np.array(metadata, np.int64),
        np.array(payload, np.int64),
        np.array(ends, np.int64),
    )


def payload_size(data: bytes, at: int, stop: int) -> tuple[int, list[int]]:
    """`payload_size` of the metadata in `data[at:stop]`, and the offsets of the bytes that were read for it.

    Raises PayloadError without one.
    """
    fixed: list[int] = []
    while at < stop:
        tag = data[at]
        fixed.append(at)
        begin = at + 1
        value, at = read_varint(data, begin, stop)
        if at > stop:
            break
        if tag & 7 == 2:
            fixed.extend(range(begin, at))
            at += value
        elif tag & 7 != 0:
            break
        elif tag == PAYLOAD_SIZE_TAG:
            if value > 0x7FFFFFFF:
                break
            fixed.extend(range(begin, at))
            return value, fixed
        else:
            # A number of another field: its length has to be the same for all.
            fixed.extend(range(begin, at))
    raise PayloadError("a message of a batch does not say the size of its payload")
