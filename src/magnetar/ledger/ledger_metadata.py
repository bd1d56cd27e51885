"""What the metadata store keeps of a ledger.

    "BookieMetadataFormatVersion" TAB "3" LF
    length of the message, varint
    LedgerMetadataFormat (ledger.proto)

Source: BookKeeper's ledger metadata, version 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from google.protobuf.message import DecodeError, EncodeError

from magnetar.base.errors import LedgerError
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_pb2 import LedgerMetadataFormat

_HEADER: Final = b"BookieMetadataFormatVersion\t"
_VERSION: Final = b"3"


class LedgerMetadataError(LedgerError):
    """A ledger's node does not hold ledger metadata that this version understands."""


class LedgerState(Enum):
    """Where a ledger stands in its life."""

    OPEN = LedgerMetadataFormat.OPEN
    IN_RECOVERY = LedgerMetadataFormat.IN_RECOVERY
    CLOSED = LedgerMetadataFormat.CLOSED


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """One ledger. Only closed ones have an end."""

    state: LedgerState
    end: LedgerEnd | None
    """Where the ledger ends; None unless CLOSED."""
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    """(first entry, bookie ids): who holds the entries from there on. Ascending, the first is 0."""
    write_quorum: int = 1
    ack_quorum: int = 1
    created_ms: int | None = None
    """Unix milliseconds."""
    creation_token: int | None = None
    """Random per creation, >= 0."""
    custom: Mapping[str, bytes] = field(default_factory=dict)
    password: bytes = b""

    def closed(self, end: LedgerEnd) -> LedgerMetadata:
        """The same ledger, closed."""
        return replace(self, state=LedgerState.CLOSED, end=end)

    def recovering(self) -> LedgerMetadata:
        """The same ledger, about to be closed by somebody other than its writer."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def with_ensembles(self, ensembles: tuple[tuple[int, tuple[str, ...]], ...]) -> LedgerMetadata:
        """The same ledger, held by these."""
        return replace(self, ensembles=ensembles)

    def with_ensemble(self, first_entry: int, members: tuple[str, ...]) -> LedgerMetadata:
        """The same ledger, held by `members` from `first_entry` on. One that began there is replaced."""
        kept = tuple(part for part in self.ensembles if part[0] < first_entry)
        return self.with_ensembles((*kept, (first_entry, members)))


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The node's value."""
    end = metadata.end
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=len(metadata.ensembles[0][1]),
        ackQuorumSize=metadata.ack_quorum,
        length=0 if end is None else end.length_bytes,
        lastEntryId=-1 if end is None else end.last_entry,
        state=metadata.state.value,
        segment=[
            LedgerMetadataFormat.Segment(firstEntryId=first, ensembleMember=members)
            for first, members in metadata.ensembles
        ],
        digestType=LedgerMetadataFormat.CRC32C,
        password=metadata.password,
        customMetadata=[
            LedgerMetadataFormat.CustomMetadata(key=key, value=value)
            for key, value in metadata.custom.items()
        ],
    )
    if metadata.created_ms is not None:
        message.ctime = metadata.created_ms
    if metadata.creation_token is not None:
        message.cToken = metadata.creation_token
    try:
        body = message.SerializeToString()
    except EncodeError as error:
        raise LedgerMetadataError(f"cannot encode ledger metadata: {error}") from error
    return b"".join((_HEADER, _VERSION, b"\n", _varint(len(body)), body))


def decode_ledger_metadata(value: bytes) -> LedgerMetadata:
    """The ledger from its node's value. Raises LedgerMetadataError."""
    header, separator, rest = value.partition(b"\n")
    if not separator or not header.startswith(_HEADER):
        raise LedgerMetadataError("the value does not begin like ledger metadata")
    version = header[len(_HEADER) :]
    if version != _VERSION:
        raise LedgerMetadataError(f"ledger metadata of version {version!r} is not understood")
    length, at = _read_varint(rest)
    if len(rest) - at < length:
        raise LedgerMetadataError("the ledger metadata is cut short")
    try:
        message = LedgerMetadataFormat.FromString(rest[at : at + length])
    except DecodeError as error:
        raise LedgerMetadataError(f"the ledger metadata is damaged: {error}") from error
    state = LedgerState(message.state)
    return LedgerMetadata(
        state=state,
        end=LedgerEnd(message.lastEntryId, message.length) if state is LedgerState.CLOSED else None,
        ensembles=tuple((part.firstEntryId, tuple(part.ensembleMember)) for part in message.segment),
        write_quorum=message.quorumSize,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        created_ms=message.ctime if message.HasField("ctime") else None,
        creation_token=message.cToken if message.HasField("cToken") else None,
        custom={item.key: item.value for item in message.customMetadata},
        password=message.password,
    )


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(buffer: bytes) -> tuple[int, int]:
    number = 0
    for at, byte in enumerate(buffer[:5]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return number, at + 1
    raise LedgerMetadataError("the ledger metadata has no valid length")
