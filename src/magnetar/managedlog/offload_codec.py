"""The stored form of what a log remembers of a ledger's copy.

    uidMsb, uidLsb        the attempt, as two signed halves
    complete              it was read back and compared
    bookkeeperDeleted     the ledger may be gone from the bookies
    timestamp             Unix ms
    driverMetadata        name `magnetar-parquet`; properties `url` and, once complete, `segments`;
                          `footers`, what the end of each segment must be;
                          `keys` when there is a directory of keys beside them;
                          `deleteAfter`, Unix ms, when another copy has replaced it
                          name `magnetar-parquet-merged`: besides `ledgers`, first and last one of its object

Source: Pulsar's OffloadContext; the names of properties are ours.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.tiered.context import (
    DRIVER,
    MERGED_DRIVER,
    KeyObject,
    LedgerRange,
    OffloadContext,
    decode_segments,
    encode_footers,
    encode_segments,
    with_footers,
)

_URL: Final = "url"
_SEGMENTS: Final = "segments"
_FOOTERS: Final = "footers"
_KEYS: Final = "keys"
_LEDGERS: Final = "ledgers"
_DELETE_AFTER: Final = "deleteAfter"
_HALF: Final = 1 << 64


def _signed(half: int) -> int:
    return half - _HALF if half >= _HALF >> 1 else half


def encode_context(context: OffloadContext) -> pb.OffloadContext:
    """The message of one attempt."""
    if context.foreign:
        return pb.OffloadContext.FromString(context.foreign)
    # Versions that do not know objects of several ledgers leave them alone.
    metadata = pb.OffloadDriverMetadata(name=DRIVER if context.merged is None else MERGED_DRIVER)
    metadata.properties.add(key=_URL, value=context.url)
    if context.segments:
        metadata.properties.add(key=_SEGMENTS, value=encode_segments(context.segments))
    if footers := encode_footers(context.segments):
        metadata.properties.add(key=_FOOTERS, value=footers)
    if context.keys is not None:
        metadata.properties.add(key=_KEYS, value=context.keys.encode())
    if context.merged is not None:
        metadata.properties.add(key=_LEDGERS, value=context.merged.encode())
    if context.delete_after_ms:
        metadata.properties.add(key=_DELETE_AFTER, value=str(context.delete_after_ms))
    return pb.OffloadContext(
        uidMsb=_signed(context.attempt.int >> 64),
        uidLsb=_signed(context.attempt.int % _HALF),
        complete=context.complete,
        bookkeeperDeleted=context.local_deleted,
        timestamp=context.timestamp_ms,
        driverMetadata=metadata,
    )


def decode_context(message: pb.OffloadContext) -> OffloadContext:
    """The inverse of `encode_context`. Raises ValueError."""
    attempt = UUID(int=(message.uidMsb % _HALF) << 64 | message.uidLsb % _HALF)
    driver = message.driverMetadata.name
    properties = {item.key: item.value for item in message.driverMetadata.properties}
    if driver not in (DRIVER, MERGED_DRIVER):
        return OffloadContext(
            attempt,
            properties.get(_URL, ""),
            complete=message.complete,
            local_deleted=message.bookkeeperDeleted,
            timestamp_ms=message.timestamp,
            foreign=message.SerializeToString(),
        )
    return OffloadContext(
        attempt,
        properties.get(_URL, ""),
        complete=message.complete,
        local_deleted=message.bookkeeperDeleted,
        timestamp_ms=message.timestamp,
        segments=with_footers(decode_segments(properties.get(_SEGMENTS, "")), properties.get(_FOOTERS, "")),
        keys=KeyObject.decode(properties[_KEYS]) if _KEYS in properties else None,
        merged=LedgerRange.decode(properties.get(_LEDGERS, "")) if driver == MERGED_DRIVER else None,
        delete_after_ms=int(properties.get(_DELETE_AFTER, "0")),
    )
