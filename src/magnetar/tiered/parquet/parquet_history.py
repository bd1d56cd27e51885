"""History as Parquet: its values and protocols. Nothing here imports pyarrow.

A *segment* is one Parquet file with consecutive entries of one ledger, one row per message. Small segments of
several ledgers can be merged into one. Entries are written from the form in which the ledger stores them
(`EntryRun`) and are read in a form that consumers cannot distinguish from it:

- same ids, also inside batches, same message indexes, counts and broker times;
- MessageMetadata and, in batches, every SingleMessageMetadata byte for byte;
- `LEFT_OUT` for entries that came as such: they have no rows, only their ids are kept;
- payloads byte for byte. An entry that was compressed is compressed again by the same codec, so its
  compressed bytes and its checksum may differ; every other entry is bit-exact.

There are two ways to use it:

- in the broker: `OffloadWorker` (module `offload_worker.py`), which does all work in a helper process;
- in a process that has pyarrow (Spark, tools, tests): `magnetar.history.segment_writer.SegmentWriter` and
  `magnetar.history.reader.SegmentReader`, or any Parquet reader.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, runtime_checkable

from magnetar.base.entries import EntryRun
from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId

FORMAT_OF_ONE_LEDGER = 1
"""Format of files with one ledger."""
FORMAT_OF_SEVERAL_LEDGERS = 2
"""Format of files with several ledgers."""
FORMAT_VERSION = 3
"""The newest format, that of files that leave entries out. Raise it when older readers would misread new
files."""


class HistoryError(StorageError):
    """A segment cannot be written or read."""


class HistoryPackagesError(HistoryError):
    """Optional packages are missing. The message names the command that installs them."""


class DamagedSegmentError(HistoryError):
    """The bytes are not a segment, or are a segment that this version cannot read."""


class DamagedRowsError(DamagedSegmentError):
    """Row groups of a segment are damaged; the entries before and after them are whole."""

    def __init__(self, text: str, first_entry: int, last_entry: int) -> None:
        """`first_entry`, `last_entry`: the damaged entries, both included."""
        super().__init__(text)
        self.first_entry = first_entry
        self.last_entry = last_entry


class WorkerLostError(HistoryError):
    """The worker process ended in the middle of the work; the next call starts a new one."""

    retriable = True

    def __init__(self, text: str, status: int | None = None) -> None:
        """`status`: exit status of the process, None when unknown; negative: the signal that ended it."""
        super().__init__(text)
        self.status = status


class Footer(NamedTuple):
    """Length and checksum of a segment's footer, recorded outside the segment to detect damage."""

    length: int
    """Bytes of Parquet's metadata, without the eight bytes after it."""
    crc32c: int
    """CRC32C of the metadata."""

    def encode(self) -> str:
        """`length:crc32c` in decimal."""
        return f"{self.length}:{self.crc32c}"

    @classmethod
    def decode(cls, text: str) -> Footer:
        """The inverse of `encode`. Raises ValueError."""
        length, _, crc32c = text.partition(":")
        return cls(int(length), int(crc32c))


def check_packages() -> None:
    """Raises HistoryPackagesError unless pyarrow, numpy and cramjam are installed. Imports none."""
    missing = [name for name in ("pyarrow", "numpy", "cramjam") if find_spec(name) is None]
    if missing:
        raise HistoryPackagesError(
            f"history as Parquet needs {', '.join(missing)}: pip install '.[lake]' in a clone"
        )


@dataclass(frozen=True, slots=True)
class StoredTopicSchema:
    """One version of a topic's schema."""

    version: bytes
    """The version as in messages (`schema_version` of their metadata); eight bytes from our registry."""
    kind: int
    """`Schema.Type` of the protocol."""
    definition: bytes
    """`schema_data`: Avro JSON, or a FileDescriptorSet for PROTOBUF_NATIVE."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """Topic, ledger and schemas of a segment; stored in the file's key-value metadata."""

    topic: str
    """Full name, with the partition's suffix: `persistent://tenant/namespace/name-partition-0`."""
    ledger_id: LedgerId
    schemas: Sequence[StoredTopicSchema] = ()
    """All versions in force, oldest first: the columns of `value` and their ids follow their order."""
    merged: bool = False
    """Whether ledgers with higher ids may follow in the same file."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Description of a written segment, small enough for the stored list of ledgers or a manifest."""

    topic: str
    ledger_id: LedgerId
    """Id of the ledger; of the first one when the segment has several."""
    first_entry: int
    last_entry: int
    """Last entry; of the last ledger when the segment has several."""
    rows: int
    """Number of rows: one per message, and one per raw entry, whatever its number of messages."""
    messages: int
    """Number of messages as the log counts them (PIP-70 indexes), without those that are left out."""
    base_index: int
    """Index of the first message."""
    raw_bytes: int
    """Bytes of all entries with rows as the ledger stored them."""
    file_bytes: int
    crc32c: int
    """CRC32C of the whole file: compare it after uploading."""
    publish_time_min_ms: int | None
    publish_time_max_ms: int | None
    """Latest publish time by the producers' clocks, Unix ms; None when no row has one."""
    broker_time_min_ms: int
    broker_time_max_ms: int
    raw_entries: int
    """Number of entries stored as they are, because the broker must not or cannot decode them."""
    keys: int
    """Distinct keys; 0 when no message has one."""
    key_min: bytes
    key_max: bytes
    """Smallest and largest key, first 64 bytes of each; the maximum is cut off downwards, so compare
    prefixes. Empty without keys."""
    row_groups: int

    def to_json(self) -> str:
        """The summary as JSON, with keys in a fixed order."""
        values = asdict(self)
        values["key_min"], values["key_max"] = self.key_min.hex(), self.key_max.hex()
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> SegmentSummary:
        """The inverse of `to_json`; ignores unknown fields. Raises DamagedSegmentError."""
        try:
            values: dict[str, Any] = json.loads(text)
            values = {name: values[name] for name in cls.__dataclass_fields__}
            values["key_min"] = bytes.fromhex(values["key_min"])
            values["key_max"] = bytes.fromhex(values["key_max"])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedSegmentError(f"not the summary of a segment: {error}") from error


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message found by its key, with enough fields to print it; its entry has all others."""

    ledger_id: LedgerId
    entry_id: int
    batch_index: int
    """-1 when its entry is not a batch."""
    index: int
    publish_time_ms: int
    event_time_ms: int | None
    key: bytes
    key_is_string: bool
    """False when the producer gave the key as bytes."""
    properties: tuple[tuple[str, str], ...]
    producer_name: str
    sequence_id: int
    broker_time_ms: int
    schema_version: bytes
    chunks: int
    """Number of chunks of the message; above 1, `payload` is one chunk as it is stored."""
    is_null_value: bool
    payload: bytes

    @property
    def place(self) -> MessagePlace:
        """The place of the message."""
        return MessagePlace(self.ledger_id, self.entry_id, self.batch_index)


class MessagePlace(NamedTuple):
    """Place of a message in its log; places sort in the order of the log."""

    ledger_id: LedgerId
    entry_id: int
    batch_index: int
    """-1 when its entry is not a batch."""


class KeyPlace(NamedTuple):
    """A segment in a directory of keys."""

    ledger_id: LedgerId
    attempt: str
    """Id of the ledger's copy."""
    first_entry: int


class KeySource(NamedTuple):
    """A source of a directory of keys: a segment or a smaller directory."""

    source: AsyncByteSource
    segment: KeyPlace | None
    """The segment; None when the source is a directory."""


def segment_suffix(first_entry: int, last_entry: int) -> str:
    """End of the name of a segment, after the prefix with ledger and attempt (`attempt_prefix`). Names sorted
    as text are in the order of entries."""
    return f"-{first_entry:019d}-{last_entry:019d}.parquet"


class ByteSource(Protocol):
    """Blocking ranged reads of one segment, for processes that read without a broker."""

    @property
    def name(self) -> str:
        """Names the object in errors."""

    @property
    def size(self) -> int:
        """Bytes of the object."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on; `offset + length <= size`. Raises StorageError or
        OSError."""


@runtime_checkable
class KnownEnd(Protocol):
    """A source with a recorded footer."""

    footer: Footer | None
    """None when it was not recorded."""


class AsyncByteSource(Protocol):
    """Ranged reads of one segment by the broker's process; only that process has stores and credentials."""

    @property
    def name(self) -> str:
        """Name of the object in errors, and its identity: the worker caches footers by name."""

    @property
    def size(self) -> int:
        """Bytes of the object."""

    @property
    def path(self) -> str | None:
        """Path of a file that the worker may read directly, which is faster; None for other stores."""

    @property
    def footer(self) -> Footer | None:
        """The recorded end; None when it was not recorded."""

    async def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on. The call that needed them raises the errors of this
        one."""


class SegmentWorker(Protocol):
    """Converts and reads segments in a separate process, which the first call starts.

    Calls are done one after the other: use one worker for offloading and another one for consumers, which
    must not wait for a conversion. A cancelled `convert` leaves no file. A cancelled read continues in the
    worker, and its result is dropped.
    All calls raise HistoryPackagesError, WorkerLostError, HistoryError.
    """

    async def convert(
        self, runs: AsyncIterator[Sequence[EntryRun]], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """Writes a segment to the local file `path`, which must not exist, and syncs it.

        `runs` are consecutive entries of `origin.ledger_id`, at least one; each vector should have from
        256 KiB to a few MiB. The worker needs memory of some 10 times a row group (16 MiB). Rebuilt metadata
        is compared with the original before it is written. On any error the file is removed.
        """

    async def entries(
        self, source: AsyncByteSource, ledger_id: LedgerId, first_entry: int, bytes_max: int
    ) -> list[EntryRun]:
        """Entries of a ledger from `first_entry` on, which the segment must hold: as many as fit into
        `bytes_max`, at least one; see `LedgerReader.read`. A call that continues where the last one ended
        needs no further reads of the source until a row group ends."""

    async def position_at(self, source: AsyncByteSource, ledger_id: LedgerId, time_ms: int) -> int | None:
        """The first entry of a ledger with broker time >= `time_ms`, Unix ms; None when there is none. Costs
        one or two ranged reads besides the footer."""

    async def lookup(
        self, source: AsyncByteSource, key: bytes, count_max: int, before: MessagePlace | None = None
    ) -> list[FoundMessage]:
        """The last `count_max` messages with this key, newest first, before the place `before` if it is
        given. Costs two ranged reads when no message has the key, else a few per row group that has one."""

    async def merge_keys(self, sources: Sequence[KeySource], path: str) -> int:
        """Writes the directory of keys of these sources to the local file `path`, which must not exist, and
        returns its bytes; 0 and no file when they have more keys than a directory takes. The file is not
        synced: it can be made again."""

    async def find_key(self, source: AsyncByteSource, key: bytes) -> tuple[list[KeyPlace], list[KeyPlace]]:
        """Searches a directory of keys; returns the segments that it covers, and those that may have the key.
        Costs at most three ranged reads, one when the directory is small or has no keys."""

    async def alike(self, parts: Sequence[AsyncByteSource]) -> list[int]:
        """Lengths of consecutive groups of these segments that can be merged, because they were written with
        the same schemas. Costs one ranged read per segment."""

    async def merge(
        self, parts: Sequence[AsyncByteSource], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """Writes one segment with all entries of these segments, in their order, to the local file `path`, as
        `convert` does. Schemas and `origin.ledger_id` are those of the first segment."""

    async def verify_merged(self, source: AsyncByteSource, parts: Sequence[AsyncByteSource]) -> int:
        """Compares a segment with the segments from which it was merged, as `verify` does."""

    async def verify(self, source: AsyncByteSource, runs: AsyncIterator[Sequence[EntryRun]]) -> int:
        """Rebuilds all entries and compares them with `runs` byte for byte, after decompression if they are
        compressed; returns their number. Raises DamagedSegmentError for the first difference."""

    async def close(self) -> None:
        """Ends the process. Calls under way raise WorkerLostError."""
