"""Finds the messages of all batches of a delivery.

Producers of machine data often write equal batches, whose messages all have one size and one layout. The
first batch shows the offsets of the bytes that hold the sizes; all messages of all equal batches are compared
with it in one step, which costs a tenth of a search in each batch. Other batches are walked.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from magnetar.arrow.batch_walk import walk_batches
from magnetar.arrow.batches import BatchSpans, batch_spans, payload_size
from magnetar.arrow.fields import Bytes, Ints
from magnetar.client.errors import PayloadError

_MESSAGE_BYTES_MIN: Final = 4
"""Fewest bytes of a message: the size of its metadata. A batch that claims more messages than fit is
damaged."""


def find_messages(data: bytes, array: Bytes, starts: Ints, ends: Ints, counts: Ints) -> BatchSpans:
    """The messages of the batches `data[starts[i]:ends[i]]`, batch by batch.

    `array`: the same buffer, with PADDING after the last batch. Each count must be at least 1. Raises
    PayloadError for a batch that is cut off or malformed.
    """
    if (counts * _MESSAGE_BYTES_MIN > ends - starts).any():
        raise PayloadError("a batch is shorter than its number of messages allows")
    found = _uniform(data, array, starts, ends, counts)
    if found is not None:
        return found
    lengths = ends - starts
    sizes, places, numbers = np.unique(lengths, return_inverse=True, return_counts=True)
    alike = (places == np.argmax(numbers)) & (counts == counts[np.argmax(places == np.argmax(numbers))])
    if len(sizes) > 1 and 2 * int(alike.sum()) >= len(starts):
        # Most are alike, some are not, such as the last one of a producer.
        found = _uniform(data, array, starts[alike], ends[alike], counts[alike])
    if found is None:
        return _walked(data, array, starts, ends, counts)
    rest = _walked(data, array, starts[~alike], ends[~alike], counts[~alike])
    own = np.repeat(alike, counts)
    merged = np.empty((3, len(own)), np.int64)
    merged[:, own], merged[:, ~own] = np.stack(found), np.stack(rest)
    return BatchSpans(*merged)


def _walked(data: bytes, array: Bytes, starts: Ints, ends: Ints, counts: Ints) -> BatchSpans:
    spans, sound = walk_batches(data, array, starts, ends, counts)
    if not sound.all():
        wrong = int(np.argmin(sound))
        batch_spans(data, array, int(starts[wrong]), int(ends[wrong]), int(counts[wrong]))
        raise PayloadError(f"a batch of {int(counts[wrong])} messages is damaged")
    return spans


def _uniform(data: bytes, array: Bytes, starts: Ints, ends: Ints, counts: Ints) -> BatchSpans | None:
    """The messages of these batches; None unless all have the same layout and message size."""
    first, end, count = int(starts[0]), int(ends[0]), int(counts[0])
    length = end - first
    if length < 8 or (counts != count).any() or (ends - starts != length).any():
        return None
    metadata_at = first + 4
    payload_at = metadata_at + int.from_bytes(data[first:metadata_at], "big")
    if payload_at > end:
        return None
    try:
        size, fixed = payload_size(data, metadata_at, payload_at)
    except PayloadError:
        return None
    stride = payload_at + size - first
    if stride * count != length:
        return None
    messages: Ints = (starts[:, None] + np.arange(0, length, stride, dtype=np.int64)).reshape(-1)
    # The bytes that determine where a message's payload starts and ends.
    for place in (0, 1, 2, 3, *(each - first for each in fixed)):
        if (array[messages + place] != array[first + place]).any():
            return None
    return BatchSpans(messages + 4, messages + (payload_at - first), messages + stride)
