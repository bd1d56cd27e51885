"""Entries of a managed log as bookies store them: broker metadata, then the producer's entry. Pure.

    0x0e02 u16 | size u32 | 08 broker_timestamp | 10 index | 78 messages | entry

The index is that of the entry's last message. `messages` is a field of ours, which Pulsar's readers skip: it
gives the index of an entry's first message without decoding the entry. Without it Pulsar wrote the entry, and
the entry's metadata holds the number of messages, and their time if there is no broker's.

Source: PIP-70, BrokerEntryMetadata.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.base.entries import TIME_MS_MAX, EntryRun
from magnetar.base.errors import CorruptDataError, ProtocolError
from magnetar.base.ids import LedgerId
from magnetar.wire.frames import MAGIC_BROKER_METADATA, read_varint, varint
from magnetar.wire.payload import EntryError, parse_metadata, split_entry

_HEAD: Final = struct.Struct(">HI")
_TIME: Final = 0x08
_INDEX: Final = 0x10
_MESSAGES: Final = 0x78
_ONE_MESSAGE: Final = b"\x78\x01"


def is_bare(tags: Mapping[str, bytes], *, for_pulsar: bool = False) -> bool:
    """Whether the entries of a ledger with this custom metadata are stored without broker metadata: those of
    cursors and of schemas, and `for_pulsar` all that belong to cursors, as a compacted ledger does."""
    component = tags.get("component")
    return component == b"schema" or (
        "pulsar/cursor" in tags and (for_pulsar or component == b"managed-ledger")
    )


def stored(
    entries: list[bytes], counts: list[int] | None, base_index: int, broker_time_ms: int
) -> list[bytes]:
    """The bytes to store for `entries`; the other arguments are those of EntryRun."""
    time = b"\x08" + varint(broker_time_ms) + b"\x10"
    out: list[bytes] = []
    index = base_index - 1
    messages = _ONE_MESSAGE
    for row, entry in enumerate(entries):
        if counts is None:
            index += 1
        else:
            index += counts[row]
            messages = b"\x78" + varint(counts[row])
        block = time + varint(index) + messages
        out.append(_HEAD.pack(MAGIC_BROKER_METADATA, len(block)) + block + entry)
    return out


def runs(ledger_id: LedgerId, first_entry: int, payloads: Iterable[bytes]) -> list[EntryRun]:
    """The runs of consecutive stored entries. Raises CorruptDataError for invalid broker metadata."""
    out: list[EntryRun] = []
    current: EntryRun | None = None
    counts: list[int] = []
    next_index = 0
    for entry_id, payload in enumerate(payloads, first_entry):
        try:
            time_ms, index, count, start = _split(payload)
        except (ProtocolError, IndexError, struct.error) as error:
            raise CorruptDataError(
                f"entry {entry_id}", 0, f"its broker metadata cannot be read: {error}", ledger_id
            ) from error
        entry = payload[start:]
        if count is None or not time_ms:
            told_count, published_ms = _told_by(entry)
            count = told_count if count is None else count
            # As in Pulsar, and not 1970: its messages would expire at once.
            time_ms = time_ms or published_ms
        time_ms = min(time_ms, TIME_MS_MAX)
        # Entries of a log without indexes get those of a log with one message per entry.
        base_index = entry_id if index is None else index + 1 - count
        if current is None or time_ms != current.broker_time_ms or base_index != next_index:
            _finish(current, counts)
            counts = []
            current = EntryRun(ledger_id, entry_id, [], None, base_index, time_ms)
            out.append(current)
        current.entries.append(entry)
        counts.append(count)
        next_index = base_index + count
    _finish(current, counts)
    return out


def _finish(run: EntryRun | None, counts: list[int]) -> None:
    if run is not None and counts.count(1) != len(counts):
        run.counts = counts


def _split(payload: bytes) -> tuple[int, int | None, int | None, int]:
    """Time, last index, messages, and offset of the entry; None for a missing field."""
    if payload[:2] != b"\x0e\x02":
        return 0, None, None, 0
    _, size = _HEAD.unpack_from(payload)
    at = _HEAD.size
    stop = at + size
    if stop > len(payload):
        raise EntryError("it is cut off")
    time_ms = 0
    index: int | None = None
    count: int | None = None
    while at < stop:
        tag = payload[at]
        value, at = read_varint(payload, at + 1, stop)
        if at > stop:
            raise EntryError("a field is cut off")
        if tag == _TIME:
            time_ms = value
        elif tag == _INDEX:
            index = value
        elif tag == _MESSAGES:
            count = value
    return time_ms, index, count, stop


def _told_by(entry: bytes) -> tuple[int, int]:
    """Messages in an entry, and when they were published, Unix ms, by its own metadata; 1 and 0 for an entry
    that is not a message."""
    try:
        metadata = parse_metadata(split_entry(entry).metadata)
    except EntryError:
        return 1, 0
    return max(1, metadata.num_messages_in_batch), metadata.publish_time
