"""Headers of transactions as a log: its records, and which of them are still needed (pure).

A record is a value of the metadata store and has the lines of all headers that changed together:

    crc32c of the rest                          4 bytes, big-endian
    coordinator, number, length of what follows 8, 8 and 4 bytes; then one of
        a header                                it replaces what was there: `transaction.py`
        C                                       the header as it stood, and it is committed
        -                                       the header is gone

Records are numbered from 0 without a hole and are deleted from the beginning only: else an older header would
come back once a newer line is deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from magnetar.broker.transactions.ids import TxnId
from magnetar.wire.checksum import crc32c

COMMITTED: Final = b"C"
"""HeaderLine of a transaction whose header changes in nothing else."""
OVER: Final = b"-"
"""HeaderLine of a header that goes."""
GIVEN_UP: Final = b"given up"
"""What an operator stores in the place of a damaged record: it has no lines."""
BYTES_MAX: Final = 256 * 1024
"""Size of a record; one of a larger header has that header alone."""
SPARE_BYTES: Final = 1 << 20
"""Bytes of lines that are not needed, up to which none is written anew to get rid of them."""

_CHECKSUM: Final = struct.Struct(">I")
_LINE: Final = struct.Struct(">QQI")
_OPEN: Final = b'{"s":"OPEN"'
_DECIDED: Final = b'{"s":"COMMITTED"'


class HeaderLine(NamedTuple):
    """What a record says of a transaction."""

    txn_id: TxnId
    text: bytes
    """A header, COMMITTED or OVER."""


def encode(lines: Iterable[HeaderLine]) -> bytes:
    """A record. Numbers of transactions are from 0 to 2^64 - 1."""
    pieces: list[bytes] = []
    for (coordinator, sequence), text in lines:
        pieces += (_LINE.pack(coordinator, sequence, len(text)), text)
    rest = b"".join(pieces)
    return _CHECKSUM.pack(crc32c(rest)) + rest


def decode(data: bytes) -> list[HeaderLine]:
    """The lines of a record. Raises ValueError."""
    if data == GIVEN_UP:
        return []
    rest = data[_CHECKSUM.size :]
    if len(data) < _CHECKSUM.size or _CHECKSUM.unpack_from(data) != (crc32c(rest),):
        raise ValueError("its checksum is wrong")
    lines, at, size = list[HeaderLine](), 0, len(rest)
    while at < size:
        if size - at < _LINE.size:
            raise ValueError("it is cut off")
        coordinator, sequence, length = _LINE.unpack_from(rest, at)
        at += _LINE.size + length
        if at > size:
            raise ValueError("it is cut off")
        lines.append(HeaderLine(TxnId(coordinator, sequence), rest[at - length : at]))
    return lines


def after(header: bytes | None, text: bytes) -> bytes | None:
    """What a line makes of the header before it; None: there is none. A header that was lost, or that cannot
    be committed, becomes a damaged one."""
    if text == OVER:
        return None
    if text != COMMITTED:
        return text
    if header is None or not header.startswith(_OPEN):
        return COMMITTED
    return _DECIDED + header[len(_OPEN) :]


def fold(records: Iterable[Sequence[HeaderLine]]) -> dict[TxnId, bytes]:
    """The headers that a log leaves, by its records in their order."""
    found: dict[TxnId, bytes] = {}
    for lines in records:
        for txn_id, text in lines:
            header = after(found.get(txn_id), text)
            if header is None:
                found.pop(txn_id, None)
            else:
                found[txn_id] = header
    return found


class _Record:
    __slots__ = ("needed", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        """Size of its lines."""
        self.needed = dict[TxnId, int]()
        """Bytes of lines that are needed, by transaction."""


class HeaderLog:
    """Which records there are, and which of them have lines that are needed."""

    def __init__(self) -> None:
        self.next = 0
        """Number of the next record."""
        self._records: dict[int, _Record] = {}
        """In the order of their numbers."""
        self._places: dict[TxnId, list[int]] = {}
        """Records with lines of a transaction, from the one with its whole header on."""
        self._versions: dict[TxnId, int] = {}
        self._bytes = self._needed_bytes = 0

    def __len__(self) -> int:
        """Records."""
        return len(self._records)

    def places(self, txn_id: TxnId) -> Sequence[int]:
        """Numbers of the records that say how a transaction stands, ascending; empty: it has no header."""
        return self._places.get(txn_id, ())

    def version(self, txn_id: TxnId) -> int | None:
        """Number of the record with the last change of a header; None: there is none."""
        return self._versions.get(txn_id)

    def add(self, lines: Iterable[HeaderLine], renewed: Container[TxnId] = ()) -> None:
        """The next record is durable and has these lines, one for each transaction. `renewed`: transactions
        whose headers were only written anew, which keeps their versions."""
        number, record = self.next, _Record()
        self.next += 1
        self._records[number] = record
        for txn_id, text in lines:
            record.size_bytes += len(text)
            if text == COMMITTED and txn_id in self._places:
                self._places[txn_id].append(number)
            else:
                self._drop(txn_id)
                if text == OVER:
                    self._versions.pop(txn_id, None)
                    continue
                self._places[txn_id] = [number]
            if txn_id not in renewed:
                self._versions[txn_id] = number
            record.needed[txn_id] = len(text)
            self._needed_bytes += len(text)
        self._bytes += record.size_bytes

    def _drop(self, txn_id: TxnId) -> None:
        for number in self._places.pop(txn_id, ()):
            self._needed_bytes -= self._records[number].needed.pop(txn_id)

    def not_needed(self) -> list[int]:
        """Records at the beginning that may be deleted, ascending. The last one stays, for its number."""
        first = takewhile(lambda each: not self._records[each].needed, self._records)
        return [number for number in first if number != self.next - 1]

    def deleted(self, numbers: Iterable[int]) -> None:
        """These are not there any more."""
        for number in numbers:
            self._bytes -= self._records.pop(number).size_bytes

    def to_renew(self) -> Mapping[TxnId, int]:
        """Transactions whose headers are to be written anew, so that records at the beginning can go: those
        of the oldest record, where the log is mostly not needed."""
        if self._bytes <= 2 * self._needed_bytes + SPARE_BYTES:
            return {}
        oldest = next(iter(self._records.values()))
        return oldest.needed

    def check(self) -> None:
        """Asserts what must always hold."""
        numbers = list(self._records)
        assert not numbers or numbers == list(range(numbers[0], self.next)), "a hole"
        assert self._bytes == sum(each.size_bytes for each in self._records.values())
        assert self._needed_bytes == sum(sum(each.needed.values()) for each in self._records.values())
        for txn_id, places in self._places.items():
            assert places == sorted(set(places))
            assert all(txn_id in self._records[number].needed for number in places)
        assert self._versions.keys() == self._places.keys()
        assert sum(map(len, self._places.values())) == sum(
            len(each.needed) for each in self._records.values()
        )
