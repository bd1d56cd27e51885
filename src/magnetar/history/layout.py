"""How a segment's file is laid out, beyond what Parquet says; shared by writer and reader.

    row groups | key index, if any message has a key | footer of Parquet

Parquet finds everything by offsets from its footer, so that other readers pass over the key index. The
key-value metadata of the footer names it, and holds what the file is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.tiered.parquet.parquet_history import DamagedSegmentError

FORMAT_KEY: Final = "magnetar.format"
TOPIC_KEY: Final = "magnetar.topic"
RANGE_KEY: Final = "magnetar.entries"
"""`ledger:first entry:last entry`; of several ledgers, with commas between them."""
STARTS_KEY: Final = "magnetar.row_groups"
"""`ledger:entry` that each row group begins with, with commas between them; where there are several ledgers.
Statistics tell it only where there is one."""
SUMMARY_KEY: Final = "magnetar.summary"
"""The summary as JSON, with 0 for the size and the checksum of the file, which it cannot hold."""
KEY_INDEX_KEY: Final = "magnetar.key_index"
SCHEMAS_KEY: Final = "magnetar.schemas"


class KeyIndexPlace(NamedTuple):
    """Where the key index lies in the file."""

    offset: int
    length: int
    bits: int
    version: int = 1
    """Version of its bytes; 1 when it is not stored."""

    def encode(self) -> str:
        """`offset:length:bits:version` in decimal."""
        return ":".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> KeyIndexPlace:
        """Raises DamagedSegmentError."""
        try:
            return cls(*map(int, text.split(":")))
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"the key index is said to be at {text!r}") from error
