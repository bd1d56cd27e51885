"""The record of a ledger's copy in an object store.

Each attempt to copy a ledger has its own id. The names of its objects begin with the id, so that two attempts
never write the same object. An object that no list of ledgers names is an orphan. A copy consists of
segments: Parquet files with consecutive entries.

Small segments of neighbouring ledgers can be merged into one object (`merger.py`). These ledgers then share
one attempt, and the name of the object has the id of the first of them.

Source: Pulsar's `OffloadContext` in the stored list of ledgers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from magnetar.base.ids import LedgerId
from magnetar.tiered.parquet.parquet_history import Footer, segment_suffix

DRIVER: Final = "magnetar-parquet"
"""Name of the format in Pulsar's `OffloadDriverMetadata`; programs that do not know it leave the ledger
alone."""
MERGED_DRIVER: Final = "magnetar-parquet-merged"
"""Name of the format of copies in an object that several ledgers share."""


@dataclass(frozen=True, slots=True)
class OffloadedSegment:
    """One object of a complete copy."""

    first_entry: int
    last_entry: int
    file_bytes: int
    footer: Footer | None = None
    """Length and checksum that the object's footer must have; None in copies of versions that did not record
    them."""


class KeyObject(NamedTuple):
    """A directory of keys, stored beside the segments of a copy; see `magnetar.history.key_directory`."""

    file_bytes: int
    ledgers: int
    """Number of ledgers that the directory covers: this one and those before it."""

    def encode(self) -> str:
        """`bytes:ledgers`."""
        return f"{self.file_bytes}:{self.ledgers}"

    @classmethod
    def decode(cls, text: str) -> KeyObject:
        """The inverse of `encode`. Raises ValueError."""
        size, _, ledgers = text.partition(":")
        return cls(int(size), int(ledgers))


class LedgerRange(NamedTuple):
    """First and last ledger that share an object; all ledgers of the log between them share it too."""

    first: LedgerId
    last: LedgerId

    def encode(self) -> str:
        """`first:last`."""
        return f"{self.first}:{self.last}"

    @classmethod
    def decode(cls, text: str) -> LedgerRange:
        """The inverse of `encode`. Raises ValueError."""
        first, _, last = text.partition(":")
        return cls(LedgerId(int(first)), LedgerId(int(last)))


@dataclass(frozen=True, slots=True)
class OffloadContext:
    """The record of one attempt to copy a ledger."""

    attempt: UUID
    """Id of the attempt; part of the names of its objects."""
    url: str
    """URL of the store, without credentials; the copy stays there when the setting changes."""
    complete: bool = False
    """Whether the copy was read back and compared, and may be read."""
    local_deleted: bool = False
    """Whether the ledger was deleted from the bookies, so that the copy is the only one."""
    timestamp_ms: int = 0
    """Unix ms: when the copy became complete, before that when the attempt began."""
    segments: tuple[OffloadedSegment, ...] = ()
    """All segments in the order of entries, without gaps; empty until the copy is complete. A copy that is
    not complete and has segments was withdrawn."""
    keys: KeyObject | None = None
    """The copy's directory of keys; None for most copies."""
    merged: LedgerRange | None = None
    """The ledgers that share the object; None when the copy has its own objects."""
    delete_after_ms: int = 0
    """For a replaced copy, Unix ms: its objects are deleted after this time, since readers may use them
    until then."""
    foreign: bytes = b""
    """The stored bytes of a record that another offloader wrote. They are kept; the copy is neither read nor
    deleted here. Empty for our own copies."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the objects; 0 until the copy was complete."""
        return sum(segment.file_bytes for segment in self.segments)

    def completed(self, *, now_ms: int, segments: tuple[OffloadedSegment, ...]) -> OffloadContext:
        """The record of the same attempt once its copy was compared."""
        return replace(self, complete=True, timestamp_ms=now_ms, segments=segments)

    def withdrawn(self) -> OffloadContext:
        """The record of the same attempt before its objects are deleted: it is not a copy any
        more."""
        assert not self.local_deleted, "the only copy of a ledger would be given up"
        return replace(self, complete=False)

    @property
    def was_complete(self) -> bool:
        """Whether it is or has been a copy, so that tables may name its objects."""
        return self.complete or bool(self.segments)

    def without_local(self) -> OffloadContext:
        """The record of the same attempt once the copy is the only one."""
        assert self.complete, "the only copy of a ledger would be unfinished"
        return replace(self, local_deleted=True)


@dataclass(frozen=True, slots=True)
class OffloadedCopy:
    """One attempt for one ledger."""

    ledger_id: LedgerId
    context: OffloadContext

    @property
    def named_by(self) -> LedgerId:
        """Id of the ledger in the names of its objects."""
        merged = self.context.merged
        return self.ledger_id if merged is None else merged.first


def attempt_prefix(log_name: str, ledger_id: LedgerId, attempt: UUID) -> str:
    """Prefix of the names of all objects of an attempt."""
    return f"{log_name}/{ledger_id:019d}-{attempt}"


def segment_name(log_name: str, copy: OffloadedCopy, segment: OffloadedSegment) -> str:
    """Name of an object in its store."""
    prefix = attempt_prefix(log_name, copy.named_by, copy.context.attempt)
    if copy.context.merged is not None:
        return f"{prefix}-to-{copy.context.merged.last:019d}.parquet"
    return prefix + segment_suffix(segment.first_entry, segment.last_entry)


def keys_name(log_name: str, copy: OffloadedCopy) -> str:
    """Name of a copy's directory of keys."""
    return attempt_prefix(log_name, copy.named_by, copy.context.attempt) + "-keys"


def parse_object_name(name: str) -> tuple[str, int, UUID] | None:
    """Log, ledger and attempt in an object's name; None for other names."""
    log_name, slash, last = name.rpartition("/")
    digits, dash, rest = last.partition("-")
    if not slash or not dash or len(digits) != 19 or not (digits.isascii() and digits.isdigit()):
        return None
    try:
        attempt = UUID(rest[:36])
    except ValueError:
        return None
    return (log_name, int(digits), attempt) if str(attempt) == rest[:36] else None


def encode_segments(segments: tuple[OffloadedSegment, ...]) -> str:
    """`last entry:bytes` of each, separated by commas; each begins where the one before ends."""
    return ",".join(f"{segment.last_entry}:{segment.file_bytes}" for segment in segments)


def encode_footers(segments: tuple[OffloadedSegment, ...]) -> str:
    """The recorded footer of each segment, separated by commas; "" when no segment has one."""
    if all(segment.footer is None for segment in segments):
        return ""
    return ",".join("" if segment.footer is None else segment.footer.encode() for segment in segments)


def with_footers(segments: tuple[OffloadedSegment, ...], text: str) -> tuple[OffloadedSegment, ...]:
    """The segments with the footers that `encode_footers` wrote. Raises ValueError."""
    if not text:
        return segments
    footers = [Footer.decode(part) if part else None for part in text.split(",")]
    return tuple(replace(segment, footer=footer) for segment, footer in zip(segments, footers, strict=True))


def decode_segments(text: str) -> tuple[OffloadedSegment, ...]:
    """The inverse of `encode_segments`. Raises ValueError."""
    segments: list[OffloadedSegment] = []
    first = 0
    for part in text.split(",") if text else ():
        last, _, size = part.partition(":")
        segments.append(OffloadedSegment(first, int(last), int(size)))
        if int(last) < first:
            raise ValueError(f"segments do not follow each other: {text[:200]}")
        first = int(last) + 1
    return tuple(segments)
