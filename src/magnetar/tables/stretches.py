"""The places of the entries of a range. Only values, which driver and executors share."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from magnetar.base.ids import LedgerId
from magnetar.tiered.parquet.parquet_history import Footer


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One segment of a ledger. Can be pickled."""

    url: str
    """URL of the store, without credentials."""
    name: str
    first_entry: int
    last_entry: int
    size_bytes: int
    footer: Footer | None = None
    """The expected end of the file, when the broker gives it."""

    @property
    def place(self) -> tuple[str, str]:
        """Identifies the object, which can hold other ledgers too."""
        return self.url, self.name

    @property
    def is_readable(self) -> bool:
        """Whether executors may be able to open it."""
        return urlsplit(self.url).scheme in ("file", "s3", "gs", "az", "hdfs")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries `start <= e < end`; in a file, all of one ledger."""

    start: tuple[LedgerId, int]
    end: tuple[LedgerId, int]
    file: HistoryFile | None
