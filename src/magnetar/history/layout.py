"""The layout of a segment's file beyond Parquet's own; shared by writer and reader.

    row groups | key index, if any message has a key | what is left out, if anything is | footer of Parquet

Parquet finds all parts by offsets in its footer, so that other readers ignore the sections between. The
key-value metadata of the footer gives their places and describes the file, under the keys below.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.tiered.parquet.parquet_history import DamagedSegmentError

FORMAT_KEY: Final = "magnetar.format"
TOPIC_KEY: Final = "magnetar.topic"
RANGE_KEY: Final = "magnetar.entries"
"""Value: `ledger:first entry:last entry`; several ledgers are separated by commas."""
STARTS_KEY: Final = "magnetar.row_groups"
"""Value: `ledger:entry` at which each row group begins, separated by commas. Only in files with several
ledgers; in others the statistics of Parquet give it."""
SUMMARY_KEY: Final = "magnetar.summary"
"""Value: the summary as JSON, with 0 as size and checksum of the file, which are not known yet."""
KEY_INDEX_KEY: Final = "magnetar.key_index"
LEFT_OUT_KEY: Final = "magnetar.left_out"
"""`offset:length` of what `left_out.py` describes; where entries are left out."""
SCHEMAS_KEY: Final = "magnetar.schemas"


class SectionPlace(NamedTuple):
    """Where a section lies in the file."""

    offset: int
    length: int

    def encode(self) -> str:
        """`offset:length` in decimal."""
        return f"{self.offset}:{self.length}"

    @classmethod
    def decode(cls, text: str) -> SectionPlace:
        """The inverse of `encode`. Raises DamagedSegmentError."""
        try:
            return cls(*map(int, text.split(":")))
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"a section is said to be at {text!r}") from error


class KeyIndexPlace(NamedTuple):
    """Place of the key index in the file."""

    offset: int
    length: int
    bits: int
    version: int = 1
    """Version of its format; 1 when the value does not name it."""

    def encode(self) -> str:
        """`offset:length:bits:version` in decimal."""
        return ":".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> KeyIndexPlace:
        """The inverse of `encode`. Raises DamagedSegmentError."""
        try:
            return cls(*map(int, text.split(":")))
        except (ValueError, TypeError) as error:
            raise DamagedSegmentError(f"the key index is said to be at {text!r}") from error
