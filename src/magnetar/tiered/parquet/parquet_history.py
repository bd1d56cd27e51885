"""History as Parquet: what its users rely on. Values and protocols only; nothing here imports pyarrow.

A *segment* is one Parquet file with consecutive entries of one ledger, one row per message; small ones of
several ledgers can be merged into one. Entries go in
as the ledger stores them (`EntryRun`) and come out as entries that a consumer cannot tell from them:

- same ids, also inside batches, same message indexes, counts and broker times;
- MessageMetadata and, in batches, every SingleMessageMetadata byte for byte;
- payloads byte for byte. An entry that was compressed is compressed again by the same codec, so its
  compressed bytes and its checksum may differ; every other entry is bit-exact.

Two ways to use it:

- in the broker: `OffloadWorker` (module `worker.py`), all work in a helper process;
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
FORMAT_VERSION = 2
"""The newest format, that of files with several ledgers; raised when files are written that older readers
would misread."""


class HistoryError(StorageError):
    """A segment cannot be written or read."""


class HistoryPackagesError(HistoryError):
    """The optional packages are not installed. The message says what to install."""


class DamagedSegmentError(HistoryError):
    """The bytes are not those of a segment, or of one that this version cannot read."""


class DamagedRowsError(DamagedSegmentError):
    """Row groups of a segment are damaged; what is before and behind these entries is whole."""

    def __init__(self, text: str, first_entry: int, last_entry: int) -> None:
        """Both ends included."""
        super().__init__(text)
        self.first_entry = first_entry
        self.last_entry = last_entry


class WorkerLostError(HistoryError):
    """The worker process ended in the middle of the work; the next call starts a new one."""

    retriable = True

    def __init__(self, text: str, status: int | None = None) -> None:
        """`status`: of its process, where that ended; negative: the signal that ended it."""
        super().__init__(text)
        self.status = status


class Footer(NamedTuple):
    """What is known of the end of a segment from elsewhere, so that damage there is noticed."""

    length: int
    """Bytes of Parquet's metadata, without the eight behind them."""
    crc32c: int
    """Of these bytes."""

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
    """As messages name it (`schema_version` of their metadata), eight bytes from our registry."""
    kind: int
    """`Schema.Type` of the protocol."""
    definition: bytes
    """`schema_data`: Avro JSON, or a FileDescriptorSet for PROTOBUF_NATIVE."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """What the entries of a segment belong to; kept in the file's key-value metadata."""

    topic: str
    """Full name, with the partition's suffix: `persistent://tenant/namespace/name-partition-0`."""
    ledger_id: LedgerId
    schemas: Sequence[StoredTopicSchema] = ()
    """All versions in force, oldest first: the columns of `value` and their ids follow their order."""
    merged: bool = False
    """Whether ledgers with higher ids may follow in the same file."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A written segment. Small, for the stored list of ledgers or a manifest."""

    topic: str
    ledger_id: LedgerId
    """The first one, of several."""
    first_entry: int
    last_entry: int
    """Last entry of the last ledger, if there are several."""
    rows: int
    """Rows; a message each, but for raw entries (one row each, whatever they count)."""
    messages: int
    """Messages as the log counts them (PIP-70 indexes)."""
    base_index: int
    """Index of the first message."""
    raw_bytes: int
    """Bytes of all entries as the ledger stored them."""
    file_bytes: int
    crc32c: int
    """CRC32C of the whole file: compare it after uploading."""
    publish_time_min_ms: int | None
    publish_time_max_ms: int | None
    """Producers' clocks, over the rows that have one."""
    broker_time_min_ms: int
    broker_time_max_ms: int
    raw_entries: int
    """Entries kept as they are because the broker must not or cannot open them."""
    keys: int
    """Distinct keys; 0 when no message has one."""
    key_min: bytes
    key_max: bytes
    """Smallest and largest key, first 64 bytes of each; the maximum is cut off downwards, so compare
    prefixes. Empty without keys."""
    row_groups: int

    def to_json(self) -> str:
        """As text, keys in a fixed order."""
        values = asdict(self)
        values["key_min"], values["key_max"] = self.key_min.hex(), self.key_max.hex()
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> SegmentSummary:
        """Raises DamagedSegmentError when it is no summary. Fields it does not know are left out."""
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
    """A message found by its key. Enough to print it; read its entry for everything else."""

    ledger_id: LedgerId
    entry_id: int
    batch_index: int
    """-1 when its entry is no batch."""
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
    """Of more than 1 `payload` is one piece of a large message, as it is stored."""
    is_null_value: bool
    payload: bytes

    @property
    def place(self) -> MessagePlace:
        """Where it is."""
        return MessagePlace(self.ledger_id, self.entry_id, self.batch_index)


class MessagePlace(NamedTuple):
    """Where a message is in its log; in the order of the log."""

    ledger_id: LedgerId
    entry_id: int
    batch_index: int
    """-1 when its entry is no batch."""


class KeyPlace(NamedTuple):
    """A segment in a directory of keys."""

    ledger_id: LedgerId
    attempt: str
    """Which copy of the ledger."""
    first_entry: int


class KeySource(NamedTuple):
    """What a directory of keys is made of."""

    source: AsyncByteSource
    segment: KeyPlace | None
    """None: it is a directory itself."""


def segment_suffix(first_entry: int, last_entry: int) -> str:
    """How the name of a segment ends, behind what names ledger and attempt (`attempt_prefix`). Sorted as
    text these names are sorted by entry."""
    return f"-{first_entry:019d}-{last_entry:019d}.parquet"


class ByteSource(Protocol):
    """Ranged reads of one segment, blocking. For processes that read by themselves."""

    @property
    def name(self) -> str:
        """Names the object in errors."""

    @property
    def size(self) -> int:
        """Bytes of the object."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, `offset + length <= size`. Raises StorageError or OSError."""


@runtime_checkable
class KnownEnd(Protocol):
    """A source with a known end of its segment."""

    footer: Footer | None
    """None when it was not recorded."""


class AsyncByteSource(Protocol):
    """Ranged reads of one segment by the broker's process, which alone knows stores and credentials."""

    @property
    def name(self) -> str:
        """Names the object in errors, and is its identity: the worker keeps footers by name."""

    @property
    def size(self) -> int:
        """Bytes of the object."""

    @property
    def path(self) -> str | None:
        """A file that the worker may read by itself, which is faster; None for other stores."""

    @property
    def footer(self) -> Footer | None:
        """The recorded end; None when it was not recorded."""

    async def read_at(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. What it raises comes out of the call that needed them."""


class SegmentWorker(Protocol):
    """Converts and reads segments in a process of its own, started by the first call.

    Calls are done one after the other: use one worker for offloading and another one for consumers, who must
    not wait for a conversion. A cancelled `convert` leaves no file. A cancelled read goes on in the
    worker, its result is dropped.
    All calls raise HistoryPackagesError, WorkerLostError, HistoryError.
    """

    async def convert(
        self, runs: AsyncIterator[Sequence[EntryRun]], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """Writes a segment to the local file `path`, which must not exist, and syncs it.

        `runs` are consecutive entries of `origin.ledger_id`, at least one; each vector should have from
        256 KiB to a few MiB. Memory of the worker: some 10 times a row group (16 MiB). Rebuilt metadata is
        compared with what came in before it is written. On any error the file is removed.
        """

    async def entries(
        self, source: AsyncByteSource, ledger_id: LedgerId, first_entry: int, bytes_max: int
    ) -> list[EntryRun]:
        """Entries of a ledger from `first_entry` on, which the segment holds: as many as fit, at least one;
        see `LedgerReader.read`. Reading on where the last call ended costs no further reads until a row
        group ends."""

    async def position_at(self, source: AsyncByteSource, ledger_id: LedgerId, time_ms: int) -> int | None:
        """The first entry of a ledger with broker time >= `time_ms`, Unix ms; None when there is none. One
        or two ranged reads beyond the footer."""

    async def lookup(
        self, source: AsyncByteSource, key: bytes, count_max: int, before: MessagePlace | None = None
    ) -> list[FoundMessage]:
        """The last `count_max` messages with this key, newest first; of those before a place, if it is given.
        Costs two ranged reads to know that there is none, and a few per row group that has one."""

    async def merge_keys(self, sources: Sequence[KeySource], path: str) -> int:
        """Writes the directory of keys of these segments to the local file `path`, which must not exist; its
        bytes. 0 and no file when they have more keys than one directory takes. Not synced: it can be made
        again."""

    async def find_key(self, source: AsyncByteSource, key: bytes) -> tuple[list[KeyPlace], list[KeyPlace]]:
        """Searches a directory of keys: the segments that it covers, and those that may have the key. At most
        three ranged reads, one when it is small or has no keys."""

    async def alike(self, parts: Sequence[AsyncByteSource]) -> list[int]:
        """How many of these segments, from the first one on, can be merged, then how many of those behind
        them, and so on: those that were written with the same schemas. One ranged read each."""

    async def merge(
        self, parts: Sequence[AsyncByteSource], origin: SegmentOrigin, path: str
    ) -> SegmentSummary:
        """Writes a segment with all entries of these segments, in their order, to the local file `path`, as
        `convert` does, with the schemas of the first one. `origin.ledger_id` is the first one's too."""

    async def verify_merged(self, source: AsyncByteSource, parts: Sequence[AsyncByteSource]) -> int:
        """Compares a segment with the segments that it was made of, as `verify` does."""

    async def verify(self, source: AsyncByteSource, runs: AsyncIterator[Sequence[EntryRun]]) -> int:
        """Rebuilds all entries and compares them with `runs`: bit by bit, after decompression where entries
        are compressed. Returns how many there are. Raises DamagedSegmentError for the first difference."""

    async def close(self) -> None:
        """Ends the process. Calls under way raise WorkerLostError."""
