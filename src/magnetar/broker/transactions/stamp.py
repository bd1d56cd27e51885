"""The transaction of an entry, according to its metadata, which the producer wrote.

Some clients (Go) name the transaction in the command only. Then it is added to the metadata before the entry
is stored: after a restart there is no other record. Protobuf takes the last of several values: appended
fields also correct wrong ones.

Pure: no input or output, no time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from magnetar.broker.errors import NotAllowedError, RefusedError
from magnetar.broker.transactions.ids import TxnId
from magnetar.wire.checksum import crc32c
from magnetar.wire.frames import MAGIC_CHECKSUM, varint
from magnetar.wire.payload import EntryError, entry_layout, parse_metadata

_LEAST: Final = b"\xb0\x01"
"""Tag of `MessageMetadata.txnid_least_bits`: metadata without it names no transaction."""
_MOST: Final = b"\xb8\x01"
_U32: Final = struct.Struct(">I")
_CHECKSUM: Final = struct.Struct(">HI")


def may_name_transaction(entry: bytes) -> bool:
    """False is certain. Costs 0.2 µs."""
    try:
        _, start, stop = entry_layout(entry)
    except EntryError:
        return False
    return entry.find(_LEAST, start, stop) >= 0


def transaction_of(entry: bytes) -> TxnId | None:
    """The transaction that an entry names; None: none, or it cannot be read."""
    try:
        _, start, stop = entry_layout(entry)
        if entry.find(_LEAST, start, stop) < 0:
            return None
        metadata = parse_metadata(entry[start:stop])
    except EntryError:
        return None
    if not metadata.HasField("txnid_least_bits"):
        return None
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)


def strangers(entries: Sequence[bytes]) -> dict[int, RefusedError]:
    """Rows of a producer's entries outside of transactions that name one all the same: after a restart they
    would count as messages of it."""
    return {
        row: NotAllowedError("the message names a transaction that its SEND does not")
        for row, entry in enumerate(entries)
        if may_name_transaction(entry) and transaction_of(entry) is not None
    }


def stamped(entry: bytes, txn_id: TxnId) -> bytes:
    """The entry with the name of this transaction. Raises EntryError when it is not an entry."""
    if transaction_of(entry) == txn_id:
        return entry
    _, start, stop = entry_layout(entry)
    fields = b"".join((_LEAST, varint(txn_id.sequence), _MOST, varint(txn_id.coordinator)))
    rest = b"".join((_U32.pack(stop - start + len(fields)), entry[start:stop], fields, entry[stop:]))
    return _CHECKSUM.pack(MAGIC_CHECKSUM, crc32c(rest)) + rest
