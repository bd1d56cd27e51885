"""Reads and checks the end of a segment with Parquet's metadata.

A Parquet file has no checksum of its metadata, and pyarrow trusts the bytes: some damage ends its process. So
the stored list of ledgers has a checksum of the metadata (`tiered/footers.py`), by which one flipped bit is
corrected. Whether there is one or not, pyarrow gets only what `footer_rules.py` has checked and written
again, as a checksum does not stop a user with access to the object store.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.history import layout
from magnetar.history.columns import COLUMNS
from magnetar.history.compact import ThriftError
from magnetar.history.footer_rules import rewritten
from magnetar.history.one_bit import put_right
from magnetar.tiered.parquet.parquet_history import (
    FORMAT_VERSION,
    ByteSource,
    DamagedSegmentError,
    Footer,
    HistoryError,
    KnownEnd,
)
from magnetar.wire.checksum import crc32c

TAIL_BYTES: Final = 256 << 10
"""Bytes of the first read. It holds the footer of some dozens of row groups, 3 to 5 KiB each; a smaller read
takes a store about as long."""

_TRAILER: Final = struct.Struct("<I4s")
_MAGIC: Final = b"PAR1"


class End(NamedTuple):
    """The end of one segment."""

    metadata: pq.FileMetaData
    """What was checked of its footer."""
    tail: bytes
    """The last bytes of the file, which include its footer."""


@contextmanager
def sound(name: str, *, of_source: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns errors of pyarrow into DamagedSegmentError for `name`; `of_source`: error types of the source,
    which pass unchanged."""
    try:
        yield
    except of_source:
        raise
    except (pa.ArrowException, KeyError, IndexError, ValueError, OverflowError, OSError) as error:
        # OSError: pyarrow reports broken files so.
        raise DamagedSegmentError(f"{name}: {error}") from error


def read_end(source: ByteSource) -> End:
    """Reads the end with one ranged read, two for a large footer. Raises DamagedSegmentError; HistoryError
    for a later format."""
    known = source.footer if isinstance(source, KnownEnd) else None
    size = source.size
    if size < 12:
        raise DamagedSegmentError(f"{source.name} has {size} bytes: that is not a segment")
    tail = source.read_at(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
    footer_bytes, magic = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    if known is not None:
        footer_bytes, magic = known.length, _MAGIC
    if magic != _MAGIC or footer_bytes + 12 > size:
        raise DamagedSegmentError(f"{source.name} does not end as Parquet files do")
    missing = footer_bytes + _TRAILER.size - len(tail)
    if missing > 0:
        tail = source.read_at(size - len(tail) - missing, missing) + tail
    start = len(tail) - _TRAILER.size - footer_bytes
    if known is not None:
        tail = tail[:start] + _checked(source.name, tail[start : -_TRAILER.size], known)
    metadata = _parsed(source.name, tail[start : -_TRAILER.size], size - _TRAILER.size - footer_bytes)
    version = (metadata.metadata or {}).get(layout.FORMAT_KEY.encode(), b"")
    if not version.isdigit():
        raise DamagedSegmentError(f"{source.name} does not say which format it has")
    if int(version) > FORMAT_VERSION:
        raise HistoryError(
            f"{source.name} has the format {int(version)}, this release reads up to {FORMAT_VERSION}:"
            " use the newer release"
        )
    _check_columns(source.name, metadata)
    return End(metadata, tail)


def _parsed(name: str, footer: bytes, body_bytes: int) -> pq.FileMetaData:
    """What was checked of a footer that begins at `body_bytes`. Raises DamagedSegmentError."""
    try:
        safe = rewritten(footer, body_bytes)
    except ThriftError as error:
        raise DamagedSegmentError(f"{name}: its footer is damaged: {error}") from error
    with sound(name):
        return pq.read_metadata(pa.BufferReader(_MAGIC + safe + _TRAILER.pack(len(safe), _MAGIC)))


def _check_columns(name: str, metadata: pq.FileMetaData) -> None:
    """Raises DamagedSegmentError when a column of entries has another type than readers work with."""
    with sound(name):
        found = metadata.schema.to_arrow_schema()
    for column in COLUMNS:
        for at in found.get_all_field_indices(column.name):
            if found.field(at).type != column.type:
                raise DamagedSegmentError(f"{name}: the column {column.name} is {found.field(at).type}")


def _checked(name: str, footer: bytes, known: Footer) -> bytes:
    """The footer, checked; one flipped bit is corrected. Raises DamagedSegmentError."""
    if crc32c(footer) != known.crc32c:
        right = put_right(footer, known.crc32c)
        if right is None:
            raise DamagedSegmentError(f"{name}: its footer fails its checksum")
        footer = right
    return footer + _TRAILER.pack(known.length, _MAGIC)
