"""The end of a segment that was just written: what is to be noted of it.

Pages of a segment have checksums of their own, the metadata behind them has none. A damaged bit there would
be believed, or would end the process that reads it. Source: Apache Parquet format, file layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from magnetar.tiered.parquet.parquet_history import Footer
from magnetar.wire.checksum import crc32c

MAGIC: Final = b"PAR1"
END_BYTES: Final = 8
"""Behind the metadata: its length, 4 bytes, little-endian, and the magic."""


def read_footer(file: Path) -> Footer | None:
    """What the end of a file is; None when it is not that of a Parquet file. Raises OSError."""
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
