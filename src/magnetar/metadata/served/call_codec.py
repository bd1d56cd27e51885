"""Calls of a metadata store on a byte stream (pure).

Both directions carry frames: int32 length, then so many bytes, of which the first says what it is.

    client   call kind (1 byte), int32 number, fields          HERE (1 byte)
    server   ANSWER, int32 number, result kind (1 byte), …     TOLD, int32 count, (change, path) …     ASK

Strings and buffers are counted, numbers big-endian, as in `zookeeper/jute.py`. A version that may be
missing is an int64 with MISSING for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.metadata.paths import InvalidPathError
from magnetar.metadata.store import (
    BadVersionError,
    Change,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Notification,
    Operation,
    Put,
    Stat,
    Value,
)
from magnetar.metadata.zookeeper.jute import (
    JuteError,
    JuteReader,
    pack_bool,
    pack_buffer,
    pack_int,
    pack_long,
    pack_string,
)

FRAME_BYTES_MAX: Final = 64 << 20
"""Bytes of the longest frame: a transaction of values of 1 MiB."""
MISSING: Final = -(1 << 63)
_LENGTH_BYTES: Final = 4
_LONGEST_HEAD: Final = 5
"""Bytes before a result."""
_CHANGES: Final = tuple(Change)


@dataclass(frozen=True, slots=True)
class GetCall:
    """`MetadataStore.get`."""

    path: str


@dataclass(frozen=True, slots=True)
class ChildrenCall:
    """`MetadataStore.children`."""

    path: str


@dataclass(frozen=True, slots=True)
class PutCall:
    """`MetadataStore.put`."""

    put: Put
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCall:
    """`MetadataStore.delete`."""

    delete: Delete


@dataclass(frozen=True, slots=True)
class DeleteBelowCall:
    """`MetadataStore.delete_recursive`."""

    path: str


@dataclass(frozen=True, slots=True)
class TransactCall:
    """`MetadataStore.transact`."""

    operations: tuple[Operation, ...]


Call: TypeAlias = GetCall | ChildrenCall | PutCall | DeleteCall | DeleteBelowCall | TransactCall
Result: TypeAlias = Value | Stat | tuple[str, ...] | tuple[Stat | None, ...] | None


@dataclass(frozen=True, slots=True)
class StoreCall:
    """A call of the client."""

    number: int
    call: Call


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """The answer to a call."""

    number: int
    result: Result | MetadataError


@dataclass(frozen=True, slots=True)
class Told:
    """Changes, in their order."""

    changes: tuple[Notification, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """The server asks whether the client is there."""


@dataclass(frozen=True, slots=True)
class Here:
    """The client's answer to `Ask`."""


class FrameTooLongError(MetadataError):
    """A call or an answer is longer than the other end takes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes in one call or answer of the metadata, of at most {FRAME_BYTES_MAX}")


_CALLS: Final = (GetCall, ChildrenCall, PutCall, DeleteCall, DeleteBelowCall, TransactCall)
_OPERATIONS: Final = (Delete, Put, Check)
_HERE, _ASK, _ANSWER, _TOLD = b"\x20", b"\x21", b"\x22", b"\x23"
_NONE, _VALUE, _STAT, _NAMES, _STATS, _ERROR = (bytes([kind]) for kind in range(6))
_ERRORS: Final = (MetadataError, BadVersionError, NotFoundError, HasChildrenError, InvalidPathError)


def frames(buffer: bytearray) -> Iterator[bytes]:
    """Takes the whole frames off the buffer. Raises JuteError for one that is too long."""
    while len(buffer) >= _LENGTH_BYTES:
        length = int.from_bytes(buffer[:_LENGTH_BYTES])
        if length > FRAME_BYTES_MAX:
            raise JuteError(f"a frame of {length} bytes")
        end = _LENGTH_BYTES + length
        if len(buffer) < end:
            return
        frame = bytes(buffer[_LENGTH_BYTES:end])
        del buffer[:end]
        yield frame


# -- from the client -------------------------------------------------------------------------------


def encode_call(number: int, call: Call) -> bytes:
    """The frame of a call. Raises FrameTooLongError."""
    head = bytes([_CALLS.index(type(call))]) + pack_int(number)
    match call:
        case PutCall(put, ephemeral, sequential):
            body = _operation(put) + pack_bool(ephemeral) + pack_bool(sequential)
        case DeleteCall(delete):
            body = _operation(delete)
        case TransactCall(operations):
            body = pack_int(len(operations)) + b"".join(map(_operation, operations))
        case GetCall(path) | ChildrenCall(path) | DeleteBelowCall(path):
            body = pack_string(path)
    if len(head) + len(body) > FRAME_BYTES_MAX:
        # The other end would end the connection, and the session with it.
        raise FrameTooLongError(len(head) + len(body))
    return pack_buffer(head + body)


def encode_here() -> bytes:
    """The frame of `Here`."""
    return pack_buffer(_HERE)


def decode_from_client(frame: bytes) -> StoreCall | Here:
    """What a client sent. Raises JuteError."""
    if frame == _HERE:
        return Here()
    if not frame or frame[0] >= len(_CALLS):
        raise JuteError("a call of no known kind")
    kind, reader = _CALLS[frame[0]], JuteReader(frame[1:])
    number = reader.int32()
    if kind is PutCall:
        put = _read_operation(reader)
        if not isinstance(put, Put):
            raise JuteError("a call of a put that is none")
        return StoreCall(number, PutCall(put, reader.flag(), reader.flag()))
    if kind is DeleteCall:
        delete = _read_operation(reader)
        if not isinstance(delete, Delete):
            raise JuteError("a call of a deletion that is none")
        return StoreCall(number, DeleteCall(delete))
    if kind is TransactCall:
        operations = tuple(_read_operation(reader) for _ in range(_count(reader)))
        return StoreCall(number, TransactCall(operations))
    path = reader.string()
    if kind is GetCall:
        return StoreCall(number, GetCall(path))
    return StoreCall(number, ChildrenCall(path) if kind is ChildrenCall else DeleteBelowCall(path))


def _operation(operation: Operation) -> bytes:
    kind = bytes([_OPERATIONS.index(type(operation))])
    head = kind + pack_string(operation.path) + _version(operation.expected_version)
    match operation:
        case Put():
            return head + pack_buffer(operation.data)
        case Delete():
            return head + pack_long(operation.expected_creation)
        case Check():
            return head


def _read_operation(reader: JuteReader) -> Operation:
    number, path, version = reader.byte(), reader.string(), _read_version(reader)
    kind = _OPERATIONS[number] if number < len(_OPERATIONS) else None
    if kind is Put:
        return Put(path, reader.buffer(), version)
    if kind is Delete:
        return Delete(path, version, reader.int64())
    if kind is None or version is None or version < 0:
        raise JuteError("an operation of no known kind, or a condition without a version")
    return Check(path, version)


def _version(version: int | None) -> bytes:
    return pack_long(MISSING if version is None else version)


def _read_version(reader: JuteReader) -> int | None:
    version = reader.int64()
    return None if version == MISSING else version


def _count(reader: JuteReader) -> int:
    """A number of things that follow, each of a byte at least. Raises JuteError."""
    count = reader.int32()
    if not 0 <= count <= reader.left:
        raise JuteError(f"{count} things in {reader.left} bytes")
    return count


# -- from the server -------------------------------------------------------------------------------


def encode_ask() -> bytes:
    """The frame of `Ask`."""
    return pack_buffer(_ASK)


def encode_told(changes: Sequence[Notification]) -> bytes:
    """The frame of `Told`."""
    body = b"".join(bytes([_CHANGES.index(each.change)]) + pack_string(each.path) for each in changes)
    return pack_buffer(_TOLD + pack_int(len(changes)) + body)


def encode_answer(number: int, result: Result | MagnetarError) -> bytes:
    """The frame of an answer. An error of another kind than a store's own becomes a MetadataError, as does
    a result that is too long."""
    body = _result(result)
    if len(body) > FRAME_BYTES_MAX - _LONGEST_HEAD:
        body = _result(FrameTooLongError(len(body)))
    return pack_buffer(_ANSWER + pack_int(number) + body)


def decode_from_server(frame: bytes) -> StoreAnswer | Told | Ask:
    """What a server sent. Raises JuteError."""
    kind, reader = frame[:1], JuteReader(frame[1:])
    if kind == _ASK:
        return Ask()
    if kind == _TOLD:
        return Told(tuple(_read_change(reader) for _ in range(_count(reader))))
    if kind != _ANSWER:
        raise JuteError("a frame of no known kind")
    number = reader.int32()
    return StoreAnswer(number, _read_result(reader))


def _read_change(reader: JuteReader) -> Notification:
    number = reader.byte()
    if number >= len(_CHANGES):
        raise JuteError(f"no change is {number}")
    return Notification(_CHANGES[number], reader.string())


def _result(result: Result | MagnetarError) -> bytes:
    match result:
        case None:
            return _NONE
        case Value(data, stat):
            return _VALUE + _stat(stat) + pack_buffer(data)
        case Stat():
            return _STAT + _stat(result)
        case MagnetarError():
            return _ERROR + _error(result)
    names = [each for each in result if isinstance(each, str)]
    if names:
        return _NAMES + pack_int(len(names)) + b"".join(map(pack_string, names))
    stats = [each for each in result if not isinstance(each, str)]
    return _STATS + pack_int(len(stats)) + b"".join(map(_optional_stat, stats))


def _read_result(reader: JuteReader) -> Result | MetadataError:
    kind = bytes([reader.byte()])
    if kind == _NONE:
        return None
    if kind == _VALUE:
        stat = _read_stat(reader)
        return Value(reader.buffer(), stat)
    if kind == _STAT:
        return _read_stat(reader)
    if kind == _NAMES:
        return tuple(reader.string() for _ in range(_count(reader)))
    if kind == _STATS:
        return tuple(_read_stat(reader) if reader.flag() else None for _ in range(_count(reader)))
    if kind == _ERROR:
        return _read_error(reader)
    raise JuteError("an answer of no known kind")


def _optional_stat(stat: Stat | None) -> bytes:
    return pack_bool(False) if stat is None else pack_bool(True) + _stat(stat)


def _stat(stat: Stat) -> bytes:
    numbers: Iterable[int] = (stat.version, stat.created_ms, stat.modified_ms, stat.creation)
    flags = pack_bool(stat.ephemeral) + pack_bool(stat.created_by_self)
    return pack_string(stat.path) + b"".join(map(pack_long, numbers)) + flags


def _read_stat(reader: JuteReader) -> Stat:
    path = reader.string()
    version, created_ms, modified_ms, creation = (reader.int64() for _ in range(4))
    return Stat(path, version, created_ms, modified_ms, reader.flag(), reader.flag(), creation)


def _error(error: MagnetarError) -> bytes:
    kind = _ERRORS.index(type(error)) if type(error) in _ERRORS else 0
    path, expected, actual = "", None, None
    if isinstance(error, BadVersionError):
        path, expected, actual = error.path, error.expected, error.actual
    elif isinstance(error, NotFoundError | HasChildrenError | InvalidPathError):
        path = error.path
    return bytes([kind]) + pack_string(str(error)) + pack_string(path) + _version(expected) + _version(actual)


def _read_error(reader: JuteReader) -> MetadataError:
    number, text, path = reader.byte(), reader.string(), reader.string()
    expected, actual = _read_version(reader), _read_version(reader)
    kind = _ERRORS[number] if number < len(_ERRORS) else MetadataError
    if kind is BadVersionError:
        return BadVersionError(path, expected, actual)
    if kind in (NotFoundError, HasChildrenError, InvalidPathError):
        return kind(path)
    return MetadataError(text)
