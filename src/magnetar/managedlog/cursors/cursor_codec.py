"""Bytes of cursors: the value in the metadata store, and the entries of a cursor ledger.

Value at `…/{cursor}`: ManagedCursorInfo. With `cursorsLedgerId` = -1 it holds the whole state in Pulsar's
fields. Otherwise the state is in that ledger, and the mark-delete in the value is an earlier one: a lower
bound in case the ledger is lost.

Entries of a cursor ledger: PositionInfo. One without `delta` replaces all before it, as all of Pulsar's do;
one with `delta` adds to the ones before it. A Pulsar broker that takes the last entry for the whole state
finds a true mark-delete and fewer acknowledged entries than there are: it delivers some messages again, and
loses none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from magnetar.base.ids import NO_LEDGER, LedgerId, Position
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.compressed_values import plain
from magnetar.managedlog.cursors import entry_set_codec, redeliveries
from magnetar.managedlog.cursors.ack_words import bits_of_words, words_of_bits
from magnetar.managedlog.cursors.cursor_delta import CursorDelta
from magnetar.managedlog.cursors.entry_set import CHUNK_BITS, EntrySet
from magnetar.managedlog.errors import InvalidLogDataError

IN_STORE: Final = LedgerId(-1)
"""`cursorsLedgerId` of a cursor whose state is in the metadata store."""
_RANGES_MAX: Final = 10_000
"""As many as Pulsar stores of a cursor by default (`managedLedgerMaxUnackedRangesToPersist`)."""


@dataclass(frozen=True, slots=True)
class CursorValue:
    """The stored value of a cursor."""

    ledger_id: LedgerId
    """Ledger that holds the state; IN_STORE when `state` is complete."""
    state: CursorDelta
    """A snapshot; with a ledger only its mark-delete and properties count."""
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    """The subscription's properties."""
    last_active_ms: int = 0
    """When the value was written, Unix ms."""
    deleted_ledgers: tuple[LedgerId, ...] = ()
    """Cursor ledgers that were replaced and may still exist."""
    side_ledgers: tuple[LedgerId, ...] = ()
    """Ledgers with further facts about the subscription (`CursorLedgers`)."""


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _batches(partial: Mapping[Position, int]) -> list[pb.BatchedEntryDeletionIndexInfo]:
    return [
        pb.BatchedEntryDeletionIndexInfo(
            position=pb.NestedPositionInfo(ledgerId=position.ledger_id, entryId=position.entry_id),
            deleteSet=[_signed(word) for word in words_of_bits(bits)],
        )
        for position, bits in partial.items()
    ]


def _partial(batches: Sequence[pb.BatchedEntryDeletionIndexInfo]) -> dict[Position, int]:
    found = (
        (Position(LedgerId(item.position.ledgerId), item.position.entryId), bits_of_words(item.deleteSet))
        for item in batches
    )
    return {position: bits for position, bits in found if bits}


def _numbers(properties: Mapping[str, int] | None) -> list[pb.LongProperty]:
    return [pb.LongProperty(name=name, value=value) for name, value in (properties or {}).items()]


def _ranges(acked: Mapping[LedgerId, EntrySet]) -> list[pb.MessageRange]:
    return [
        pb.MessageRange(
            lowerEndpoint=pb.NestedPositionInfo(ledgerId=ledger_id, entryId=first - 1),
            upperEndpoint=pb.NestedPositionInfo(ledgerId=ledger_id, entryId=last),
        )
        for ledger_id in sorted(acked)
        for first, last in acked[ledger_id].ranges()
    ]


def _acked(ranges: Sequence[pb.MessageRange]) -> dict[LedgerId, EntrySet]:
    """Raises MalformedAckedError for more entries than a value may have: damaged bytes may say any number."""
    acked: dict[LedgerId, EntrySet] = {}
    full_left = entry_set_codec.FULL_MAX
    for item in ranges:
        upper = item.upperEndpoint
        # A range over several ledgers counts as its part in the last one: with too few acknowledged entries
        # messages are delivered again, with too many they would be lost.
        first = item.lowerEndpoint.entryId + 1 if item.lowerEndpoint.ledgerId == upper.ledgerId else 0
        if upper.entryId >= first >= 0:
            full_left -= (upper.entryId - first) // CHUNK_BITS
            if full_left < 0:
                raise entry_set_codec.MalformedAckedError(f"a range ends with entry {upper.entryId}")
            acked.setdefault(LedgerId(upper.ledgerId), EntrySet()).add_range(first, upper.entryId)
    return acked


def _words(acked: Mapping[LedgerId, EntrySet]) -> list[pb.LongListMap]:
    return [
        pb.LongListMap(key=ledger_id, values=map(_signed, words_of_bits(acked[ledger_id].bits())))
        for ledger_id in sorted(acked)
    ]


def _acked_words(ledgers: Sequence[pb.LongListMap]) -> dict[LedgerId, EntrySet]:
    acked: dict[LedgerId, EntrySet] = {}
    for item in ledgers:
        entries = EntrySet.of_bits(bits_of_words(item.values))
        if entries.count:
            acked[LedgerId(item.key)] = entries
    return acked


def _of_entry(info: pb.PositionInfo) -> dict[LedgerId, EntrySet]:
    """The acknowledged entries, in whichever of the three forms they are."""
    if info.acked:
        return entry_set_codec.decode(info.acked)
    # Where both forms of Pulsar's are there, its brokers read the ranges.
    if info.individualDeletedMessages:
        return _acked(info.individualDeletedMessages)
    return _acked_words(info.individualDeletedMessageRanges)


def encode_entry(delta: CursorDelta, *, for_pulsar: bool = False) -> bytes:
    """One entry of a cursor ledger: a delta, or a snapshot when `delta.replaces`.

    `for_pulsar`: Pulsar's brokers may read it as the whole state.
    """
    info = pb.PositionInfo(ledgerId=delta.mark_delete.ledger_id, entryId=delta.mark_delete.entry_id)
    if delta.acked and for_pulsar:
        ranges = _ranges(delta.acked)
        # Brokers before 4.0 know the ranges only; many ranges take less space as words.
        if len(ranges) <= _RANGES_MAX:
            info.individualDeletedMessages.extend(ranges)
        else:
            info.individualDeletedMessageRanges.extend(_words(delta.acked))
    elif delta.acked:
        info.acked = entry_set_codec.encode(delta.acked)
    if delta.partial:
        info.batchedEntryDeletionIndexInfo.extend(_batches(delta.partial))
    if delta.properties:
        info.properties.extend(_numbers(delta.properties))
    if delta.redeliveries:
        info.redeliveries = redeliveries.encode(delta.redeliveries)
    if not delta.replaces:
        info.delta = True
        if delta.properties is not None:
            info.propertiesChanged = True
    return bytes(info.SerializeToString())


def decode_entry(data: bytes, where: str) -> CursorDelta:
    """The inverse of `encode_entry`; also reads Pulsar's entries. `where` names the entry in
    InvalidLogDataError."""
    info = pb.PositionInfo()
    try:
        info.ParseFromString(data)
        acked = _of_entry(info)
        given_back = redeliveries.decode(info.redeliveries)
    except (DecodeError, ValueError, entry_set_codec.MalformedAckedError) as error:
        raise InvalidLogDataError(where, f"not a PositionInfo: {error}") from error
    if not info.IsInitialized():
        raise InvalidLogDataError(where, "a PositionInfo lacks fields")
    properties = {item.name: item.value for item in info.properties}
    return CursorDelta(
        Position(LedgerId(info.ledgerId), info.entryId),
        not info.delta,
        acked,
        _partial(info.batchedEntryDeletionIndexInfo),
        properties if not info.delta or info.propertiesChanged else None,
        given_back,
    )


def encode_info(info: CursorValue) -> bytes:
    """The bytes of a cursor's value."""
    state = info.state
    value = pb.ManagedCursorInfo(
        cursorsLedgerId=info.ledger_id,
        markDeleteLedgerId=state.mark_delete.ledger_id,
        markDeleteEntryId=state.mark_delete.entry_id,
        properties=_numbers(state.properties),
        lastActive=info.last_active_ms,
        cursorProperties=[
            pb.StringProperty(name=name, value=text) for name, text in info.cursor_properties.items()
        ],
        deletedLedgers=info.deleted_ledgers,
        sideLedgers=info.side_ledgers,
    )
    if info.ledger_id == IN_STORE:
        value.individualDeletedMessages.extend(_ranges(state.acked))
        value.batchedEntryDeletionIndexInfo.extend(_batches(state.partial))
        if state.redeliveries:
            value.redeliveries = redeliveries.encode(state.redeliveries)
    return bytes(value.SerializeToString())


def decode_info(data: bytes, where: str) -> CursorValue:
    """The inverse of `encode_info`; `where` names the value in InvalidLogDataError."""
    value = pb.ManagedCursorInfo()
    try:
        value.ParseFromString(plain(data, where))
        acked = _acked(value.individualDeletedMessages)
        given_back = redeliveries.decode(value.redeliveries)
    except (DecodeError, ValueError, entry_set_codec.MalformedAckedError) as error:
        raise InvalidLogDataError(where, f"not a ManagedCursorInfo: {error}") from error
    if not value.IsInitialized():
        raise InvalidLogDataError(where, "a ManagedCursorInfo lacks fields")
    state = CursorDelta(
        Position(LedgerId(value.markDeleteLedgerId), value.markDeleteEntryId)
        if value.HasField("markDeleteLedgerId")
        else Position(NO_LEDGER, -1),
        True,
        acked,
        _partial(value.batchedEntryDeletionIndexInfo),
        {item.name: item.value for item in value.properties},
        given_back,
    )
    return CursorValue(
        LedgerId(value.cursorsLedgerId),
        state,
        {item.name: item.value for item in value.cursorProperties},
        value.lastActive,
        tuple(map(LedgerId, value.deletedLedgers)),
        tuple(map(LedgerId, value.sideLedgers)),
    )
