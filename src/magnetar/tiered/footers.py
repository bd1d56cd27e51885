"""Reads length and checksum of the footer of a segment that was just written.

Pages of a Parquet file have checksums, its metadata in the footer has none. A damaged bit there would give
wrong entries, or end the process that reads it; so the checksum is kept in the list of ledgers.

Source: Apache Parquet format, file layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from magnetar.tiered.parquet.parquet_history import Footer
from magnetar.wire.checksum import crc32c

MAGIC: Final = b"PAR1"
END_BYTES: Final = 8
"""Bytes after the metadata: its length, 4 bytes, little-endian, and the 4 bytes of the magic."""


def read_footer(file: Path) -> Footer | None:
    """The footer of a file; None when it is not a Parquet file. Raises OSError."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        if size < END_BYTES + len(MAGIC):
            return None
        opened.seek(size - END_BYTES)
        end = opened.read(END_BYTES)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != MAGIC or length > size - END_BYTES - len(MAGIC):
            return None
        opened.seek(size - END_BYTES - length)
        return Footer(length, crc32c(opened.read(length)))
