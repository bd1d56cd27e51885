"""When an entry wants to be delivered, and how to see quickly that it does not say.

`deliver_at_time` is field 19 of MessageMetadata, a varint: its tag is the two bytes 0x98 0x01. An entry
without these two bytes has no such field, so most entries are passed over by a search in C. The bytes may
also stand there by chance: then the metadata is parsed and says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import contains
from typing import Final

from magnetar.broker.entry import metadata_of
from magnetar.wire.payload import EntryError, entry_layout

_TAG: Final = b"\x98\x01"
_SMALL_BYTES: Final = 1_024
"""Entries that are smaller on average are searched with their payload: that is faster than to find
where it begins."""


def may_be_delayed(entries: Sequence[bytes]) -> bool:
    """Whether any of these entries may have a delivery time; False is certain."""
    if sum(map(len, entries)) <= _SMALL_BYTES * len(entries):
        return any(map(contains, entries, repeat(_TAG)))
    return any(map(_tagged, entries))


def _tagged(entry: bytes) -> bool:
    try:
        _, metadata_at, payload_at = entry_layout(entry)
    except EntryError:
        return False
    return entry.find(_TAG, metadata_at, payload_at) >= 0


def deliver_at_ms(entry: bytes) -> int:
    """When the entry wants to be delivered, Unix ms; 0 when it does not say.

    An entry that cannot be parsed does not say: its consumer will tell that it is damaged.
    """
    if not _tagged(entry):
        return 0
    try:
        metadata = metadata_of(entry)
    except EntryError:
        return 0
    return max(0, metadata.deliver_at_time)
