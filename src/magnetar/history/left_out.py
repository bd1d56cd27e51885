"""Entries that a segment leaves out, as readers of the log never get them: those of aborted transactions.

    CRC32C of what follows u32 | zlib( five columns of the same length, i64 each )

The columns are those of `Gap`, a row for each stretch of such entries, in the order of the log; of each
number the difference to the one above it is stored. All numbers are little-endian. The section lies before
the footer, like the key index, and the file's metadata name it. Rows that are missing otherwise are damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from magnetar.arrow.fields import Ints
from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.base.ids import LedgerId
from magnetar.history.one_bit import put_right
from magnetar.tiered.parquet.parquet_history import DamagedSegmentError
from magnetar.wire.checksum import crc32c

_SUM: Final = struct.Struct("<I")
_COLUMNS: Final = 5


class Gap(NamedTuple):
    """Consecutive entries of one ledger that are left out."""

    ledger_id: LedgerId
    first_entry: int
    entries: int
    base_index: int
    """Index of the first message of the first one."""
    broker_time_ms: int
    """Broker's clock when the first one was stored."""

    def run(self, first_entry: int, count_max: int) -> EntryRun:
        """What readers get in place of these entries from one of them on; at least one, each as a message."""
        count = max(1, min(count_max, self.first_entry + self.entries - first_entry))
        index = self.base_index + first_entry - self.first_entry
        return EntryRun(self.ledger_id, first_entry, [LEFT_OUT] * count, None, index, self.broker_time_ms)


class LeftOutBuilder:
    """Collects what is left out while a segment is written."""

    def __init__(self) -> None:
        self._gaps: list[Gap] = []

    def taken(self, runs: Sequence[EntryRun]) -> list[EntryRun]:
        """These runs without entries that are left out, which are noted."""
        found: list[EntryRun] = []
        for run in runs:
            if LEFT_OUT in run.entries:
                found += self._taken(run)
            else:
                found.append(run)
        return found

    def _taken(self, run: EntryRun) -> list[EntryRun]:
        found: list[EntryRun] = []
        entries, at = run.entries, 0
        while at < len(entries):
            start, is_left_out = at, entries[at] == LEFT_OUT
            while at < len(entries) and (entries[at] == LEFT_OUT) is is_left_out:
                at += 1
            part = run.slice(start, at)
            if is_left_out:
                self._note(part)
            else:
                found.append(part)
        return found

    def _note(self, run: EntryRun) -> None:
        count = len(run.entries)
        if self._gaps:
            last = self._gaps[-1]
            if last.ledger_id == run.ledger_id and last.first_entry + last.entries == run.first_entry:
                self._gaps[-1] = last._replace(entries=last.entries + count)
                return
        self._gaps.append(Gap(run.ledger_id, run.first_entry, count, run.base_index, run.broker_time_ms))

    def finish(self) -> bytes:
        """The section; empty when nothing was left out."""
        if not self._gaps:
            return b""
        columns = np.array(self._gaps, np.int64).T
        data = zlib.compress(np.diff(columns, axis=1, prepend=0).astype("<i8").tobytes())
        return _SUM.pack(crc32c(data)) + data


class LeftOut:
    """What a segment leaves out."""

    def __init__(self, columns: Ints) -> None:
        """A row for each column of `Gap`."""
        self._columns = columns
        self._ledgers, self._firsts, self._counts = columns[:3]
        self._ends = self._firsts + self._counts

    @classmethod
    def decode(cls, name: str, section: bytes) -> LeftOut:
        """The inverse of `LeftOutBuilder.finish`; one flipped bit is corrected. Raises DamagedSegmentError;
        `name` is for that."""
        data = _checked(section)
        if data is None:
            raise DamagedSegmentError(f"{name}: what it leaves out fails its checksum")
        try:
            numbers = np.frombuffer(zlib.decompress(data), "<i8").reshape(_COLUMNS, -1)
        except (zlib.error, ValueError) as error:
            raise DamagedSegmentError(f"{name}: what it leaves out cannot be read: {error}") from error
        return cls(np.cumsum(numbers, axis=1, dtype=np.int64))

    def __bool__(self) -> bool:
        return bool(len(self._firsts))

    def _rows(self, ledger_id: LedgerId) -> tuple[int, int]:
        return (
            int(np.searchsorted(self._ledgers, ledger_id)),
            int(np.searchsorted(self._ledgers, ledger_id, side="right")),
        )

    def gap_with(self, ledger_id: LedgerId, entry: int) -> Gap | None:
        """The gap in which an entry is; None: it is not left out."""
        start, stop = self._rows(ledger_id)
        at = start + int(np.searchsorted(self._ends[start:stop], entry, side="right"))
        return None if at == stop or self._firsts[at] > entry else self._gap(at)

    def between(self, ledger_id: LedgerId, first: int, last: int) -> list[Gap]:
        """The gaps between two entries of a ledger that are not left out, in order."""
        return [self._gap(at) for at in self._rows_between(ledger_id, first, last)]

    def count_between(self, ledger_id: LedgerId, first: int, last: int) -> int:
        """Entries in these gaps."""
        rows = self._rows_between(ledger_id, first, last)
        return int(self._counts[rows.start : rows.stop].sum())

    def _rows_between(self, ledger_id: LedgerId, first: int, last: int) -> range:
        start, stop = self._rows(ledger_id)
        low, high = np.searchsorted(self._firsts[start:stop], [first, last])
        return range(start + int(low), start + int(high))

    def _gap(self, at: int) -> Gap:
        ledger_id, *rest = self._columns[:, at].tolist()
        return Gap(LedgerId(ledger_id), *rest)


def _checked(section: bytes) -> bytes | None:
    """What follows the checksum; None: it is damaged. Without it no entry of the segment can be read, so one
    flipped bit is corrected."""
    if len(section) < _SUM.size:
        return None
    data, (wanted,) = section[_SUM.size :], _SUM.unpack_from(section)
    # No flipped bit of the data changes its sum in one bit alone: then the bit is one of the sum.
    if (crc32c(data) ^ wanted).bit_count() <= 1:
        return data
    return put_right(data, wanted)


NOTHING: Final = LeftOut(np.zeros((_COLUMNS, 0), np.int64))
