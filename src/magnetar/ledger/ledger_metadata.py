"""The record of a ledger in the metadata store.

    "BookieMetadataFormatVersion" TAB version LF

    3    length of the message, varint; LedgerMetadataFormat (ledger.proto)
    2    the same message as protobuf text, without creation token
    1    lines: write quorum, ensemble size, length; for each ensemble its first entry and its members, with
         tabs between them; at the end "<last entry> TAB CLOSED", -102 for the last entry of one in recovery

New ledgers have version 3. A ledger read in an older version is written in that version again, because
clients that know no newer one may read it too.

Source: BookKeeper's LedgerMetadataSerDe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError, EncodeError

from magnetar.base.errors import LedgerError
from magnetar.ledger.api import LedgerEnd
from magnetar.ledger.ledger_pb2 import LedgerMetadataFormat
from magnetar.wire.bookkeeper.digests import DigestType

NEWEST_FORMAT: Final = 3
_HEADER: Final = b"BookieMetadataFormatVersion\t"
_LINE_END: Final = "CLOSED"
_LINE_IN_RECOVERY: Final = -102


class LedgerMetadataError(LedgerError):
    """A ledger's node does not hold ledger metadata of a known version."""


class LedgerState(Enum):
    """The state of a ledger."""

    OPEN = LedgerMetadataFormat.OPEN
    IN_RECOVERY = LedgerMetadataFormat.IN_RECOVERY
    CLOSED = LedgerMetadataFormat.CLOSED


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """One ledger. Only closed ones have an end."""

    state: LedgerState
    end: LedgerEnd | None
    """The end of the ledger; None unless CLOSED."""
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    """(first entry, bookie ids): the ensemble from that entry on. Ascending, the first is 0."""
    write_quorum: int = 1
    ack_quorum: int = 1
    created_ms: int | None = None
    """Time of creation in Unix milliseconds."""
    creation_token: int | None = None
    """Random per creation, >= 0."""
    custom: Mapping[str, bytes] = field(default_factory=dict)
    password: bytes = b""
    digest: DigestType | None = DigestType.CRC32C
    """None when the metadata names none: then the entries show it."""
    format_version: int = NEWEST_FORMAT
    """The format version in which it is written."""

    @property
    def ensemble_size(self) -> int:
        """Number of bookies of an ensemble."""
        return len(self.ensembles[0][1])

    def closed(self, end: LedgerEnd) -> LedgerMetadata:
        """The same ledger, closed."""
        return replace(self, state=LedgerState.CLOSED, end=end)

    def recovering(self) -> LedgerMetadata:
        """The same ledger in recovery, to be closed by another process than its writer."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def with_ensembles(self, ensembles: tuple[tuple[int, tuple[str, ...]], ...]) -> LedgerMetadata:
        """The same ledger with these ensembles."""
        return replace(self, ensembles=ensembles)

    def with_ensemble(self, first_entry: int, members: tuple[str, ...]) -> LedgerMetadata:
        """The same ledger with `members` from `first_entry` on. An ensemble that began there is replaced."""
        kept = tuple(part for part in self.ensembles if part[0] < first_entry)
        return self.with_ensembles((*kept, (first_entry, members)))


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The node's value. Raises LedgerMetadataError when its format cannot hold it."""
    head = b"%b%d\n" % (_HEADER, metadata.format_version)
    if metadata.format_version == 1:
        return head + _encode_lines(metadata)
    try:
        message = _message_of(metadata)
        if metadata.format_version == 2:
            message.ClearField("cToken")
            return head + text_format.MessageToString(message).encode()
        body = message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise LedgerMetadataError(f"cannot encode ledger metadata: {error}") from error
    return b"".join((head, _varint(len(body)), body))


def decode_ledger_metadata(value: bytes, path: str = "the value") -> LedgerMetadata:
    """The ledger from its node's value; `path` names the node in errors. Raises LedgerMetadataError."""
    header, separator, rest = value.partition(b"\n")
    if not separator or not header.startswith(_HEADER):
        raise LedgerMetadataError(f"{path} does not begin like ledger metadata")
    version = header[len(_HEADER) :]
    try:
        if version == b"1":
            return _with_members(_decode_lines(rest))
        if version == b"2":
            # Fields of a newer release are no reason to refuse a ledger.
            message = text_format.Parse(rest, LedgerMetadataFormat(), allow_unknown_field=True)
            return _with_members(_from_message(message, 2))
        if version == b"3":
            message = LedgerMetadataFormat.FromString(_delimited(rest))
            return _with_members(_from_message(message, NEWEST_FORMAT))
    except (DecodeError, text_format.ParseError, ValueError) as error:
        raise LedgerMetadataError(f"{path} is damaged ledger metadata: {error}") from error
    raise LedgerMetadataError(
        f"{path} is ledger metadata of version {version[:20]!r}, which is not understood"
    )


def _with_members(metadata: LedgerMetadata) -> LedgerMetadata:
    """The same; a ledger without bookies, or whose first ones are not there from its first entry on, is
    damaged. Raises ValueError."""
    if not metadata.ensembles or metadata.ensembles[0][0] != 0 or not metadata.ensembles[0][1]:
        raise ValueError("no bookies are named from the first entry on")
    return metadata


def _message_of(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    end = metadata.end
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        ackQuorumSize=metadata.ack_quorum,
        length=0 if end is None else end.length_bytes,
        lastEntryId=-1 if end is None else end.last_entry,
        state=metadata.state.value,
        segment=[
            LedgerMetadataFormat.Segment(firstEntryId=first, ensembleMember=members)
            for first, members in metadata.ensembles
        ],
        digestType=None if metadata.digest is None else metadata.digest.name,
        password=None if metadata.digest is None else metadata.password,
        customMetadata=[
            LedgerMetadataFormat.CustomMetadata(key=key, value=value)
            for key, value in metadata.custom.items()
        ],
    )
    if metadata.created_ms is not None:
        message.ctime = metadata.created_ms
    if metadata.creation_token is not None:
        message.cToken = metadata.creation_token
    return message


def _from_message(message: LedgerMetadataFormat, version: int) -> LedgerMetadata:
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
        digest=DigestType(message.digestType) if message.HasField("digestType") else None,
        format_version=version,
    )


def _encode_lines(metadata: LedgerMetadata) -> bytes:
    """Version 1 without its header: quorum, ensemble size and length, then a line for each ensemble."""
    end = metadata.end
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(end.length_bytes if end else 0)]
    lines += ["\t".join((str(first), *members)) for first, members in metadata.ensembles]
    if metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{_LINE_IN_RECOVERY}\t{_LINE_END}")
    lines.append("" if end is None else f"{end.last_entry}\t{_LINE_END}")
    return "\n".join(lines).encode()


def _decode_lines(body: bytes) -> LedgerMetadata:
    """Version 1 without its header. Raises LedgerMetadataError, ValueError."""
    lines = body.decode().split("\n")
    if len(lines) < 3:
        raise LedgerMetadataError("the ledger metadata is cut short")
    quorum, _, length = (int(line) for line in lines[:3])
    ensembles = []
    state, end = LedgerState.OPEN, None
    for line in filter(None, lines[3:]):
        number, *members = line.split("\t")
        if members != [_LINE_END]:
            ensembles.append((int(number), tuple(members)))
        elif int(number) == _LINE_IN_RECOVERY:
            state = LedgerState.IN_RECOVERY
        else:
            state, end = LedgerState.CLOSED, LedgerEnd(int(number), length)
    return LedgerMetadata(
        state, end, tuple(ensembles), quorum, ack_quorum=quorum, digest=None, format_version=1
    )


def _delimited(buffer: bytes) -> bytes:
    length, at = _read_varint(buffer)
    if len(buffer) - at < length:
        raise LedgerMetadataError("the ledger metadata is cut short")
    return buffer[at : at + length]


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
