"""The record of a ledger's copy in an object store.

One copy is one attempt with an id of its own: the names of its objects begin with it, so that two attempts
never write the same object, and an object that no list of ledgers names is an orphan. A copy is made of
segments: Parquet files with consecutive entries.

Small segments of neighbouring ledgers become one object on request (`merger.py`): these ledgers then share
one attempt, and the object is named by the first of them.

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
"""The same for copies in an object of several ledgers."""


@dataclass(frozen=True, slots=True)
class OffloadedSegment:
    """One object of a complete copy."""

    first_entry: int
    last_entry: int
    file_bytes: int
    footer: Footer | None = None
    """What its end must be; None in copies of versions that did not note it."""


class KeyObject(NamedTuple):
    """The directory of keys that a copy has beside its segments; see `magnetar.history.key_directory`."""

    file_bytes: int
    ledgers: int
    """It tells of this ledger and those before it, so many in all."""

    def encode(self) -> str:
        """`bytes:ledgers`."""
        return f"{self.file_bytes}:{self.ledgers}"

    @classmethod
    def decode(cls, text: str) -> KeyObject:
        """The inverse of `encode`. Raises ValueError."""
        size, _, ledgers = text.partition(":")
        return cls(int(size), int(ledgers))


class LedgerRange(NamedTuple):
    """The ledgers that have an object in common, both included; what lies between them is of the same log."""

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
    """One attempt to copy a ledger, and how far it came."""

    attempt: UUID
    """Which attempt; also in the names of its objects."""
    url: str
    """The store, without credentials; the copy stays there when the setting changes."""
    complete: bool = False
    """The copy was read back and compared: it may be read."""
    local_deleted: bool = False
    """The copy is the only one: the ledger was taken from the bookies."""
    timestamp_ms: int = 0
    """When the attempt began, or when it was complete, Unix ms."""
    segments: tuple[OffloadedSegment, ...] = ()
    """Without gaps, in the order of entries; empty until it is complete."""
    keys: KeyObject | None = None
    """Its directory of keys; None for most copies."""
    merged: LedgerRange | None = None
    """The ledgers that have its object in common; None for a copy of its own."""
    delete_after_ms: int = 0
    """For a replaced copy, Unix ms: readers may hold it until then."""
    foreign: bytes = b""
    """As it is stored, when another offloader wrote it: kept, and neither read nor deleted here."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the objects; 0 until it is complete."""
        return sum(segment.file_bytes for segment in self.segments)

    def completed(self, *, now_ms: int, segments: tuple[OffloadedSegment, ...]) -> OffloadContext:
        """The same attempt after its copy was compared."""
        return replace(self, complete=True, timestamp_ms=now_ms, segments=segments)

    def without_local(self) -> OffloadContext:
        """The same attempt when the copy is to become the only one."""
        assert self.complete, "the only copy of a ledger would be unfinished"
        return replace(self, local_deleted=True)


@dataclass(frozen=True, slots=True)
class OffloadedCopy:
    """One attempt for one ledger."""

    ledger_id: LedgerId
    context: OffloadContext

    @property
    def named_by(self) -> LedgerId:
        """The ledger that the names of its objects begin with."""
        merged = self.context.merged
        return self.ledger_id if merged is None else merged.first


def attempt_prefix(log_name: str, ledger_id: LedgerId, attempt: UUID) -> str:
    """What the names of all objects of an attempt begin with."""
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
    """Log, ledger and attempt of an object; None for one that is not ours."""
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
    """What is noted of the end of each, separated by commas; "" when nothing is of any."""
    if all(segment.footer is None for segment in segments):
        return ""
    return ",".join("" if segment.footer is None else segment.footer.encode() for segment in segments)


def with_footers(segments: tuple[OffloadedSegment, ...], text: str) -> tuple[OffloadedSegment, ...]:
    """The same segments with what `encode_footers` made. Raises ValueError."""
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
