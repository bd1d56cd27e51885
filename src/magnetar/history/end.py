"""Reads and checks the end of a segment with Parquet's metadata.

A Parquet file has no checksum of its metadata. pyarrow trusts the bytes, and some damage ends its process. So
the stored list of ledgers has a checksum of the metadata (`tiered/footers.py`), which is compared before
pyarrow gets them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.history import layout
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
    if known is not None:
        start = len(tail) - _TRAILER.size - known.length
        tail = tail[:start] + _checked(source.name, tail[start : -_TRAILER.size], known)
    with sound(source.name):
        metadata = pq.read_metadata(pa.BufferReader(tail))
    version = (metadata.metadata or {}).get(layout.FORMAT_KEY.encode(), b"")
    if not version.isdigit():
        raise DamagedSegmentError(f"{source.name} does not say which format it has")
    if int(version) > FORMAT_VERSION:
        raise HistoryError(
            f"{source.name} has the format {int(version)}, this release reads up to {FORMAT_VERSION}:"
            " use the newer release"
        )
    return End(metadata, tail)


def _checked(name: str, footer: bytes, known: Footer) -> bytes:
    """The footer, checked; one flipped bit is corrected. Raises DamagedSegmentError."""
    if crc32c(footer) != known.crc32c:
        right = put_right(footer, known.crc32c)
        if right is None:
            raise DamagedSegmentError(f"{name}: its footer fails its checksum")
        footer = right
    return footer + _TRAILER.pack(known.length, _MAGIC)
