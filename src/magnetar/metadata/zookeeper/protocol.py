"""Requests, replies and events of ZooKeeper, as far as the store needs them.

    frame     int length | body
    request   int xid | int opcode | record
    reply     int xid | long zxid | int error | record, when there is no error
    event     the same with xid -1; record: int type | int state | string path
    multi     for each operation: int opcode | bool false | int -1 | record; then int -1 | bool true | int -1

Source: Apache ZooKeeper's zookeeper.jute, releases 3.6 to 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from magnetar.metadata.zookeeper.jute import (
    JuteError,
    JuteReader,
    pack_bool,
    pack_buffer,
    pack_int,
    pack_long,
    pack_string,
)

EVENT_XID: Final = -1
PING_XID: Final = -2

ANY: Final = -1
"""Version that matches every version."""


class Opcode(IntEnum):
    """Operation codes of requests."""

    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    SYNC = 9
    PING = 11
    GET_CHILDREN = 12
    """getChildren2, whose reply has the parent's stat."""
    CHECK = 13
    """Only within a multi."""
    MULTI = 14
    CREATE = 15
    """create2, whose reply has a stat."""
    ADD_WATCH = 106
    CLOSE = -11


class Code(IntEnum):
    """Error codes that the store handles."""

    OK = 0
    ROLLED_BACK = -2
    """Result of an operation in a multi after the one that failed."""
    NO_NODE = -101
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    SESSION_MOVED = -118


class EventType(IntEnum):
    """The change of a path that an event reports."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3


class CreateMode(IntEnum):
    """Flags of a creation."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3


@dataclass(frozen=True, slots=True)
class NodeStat:
    """A node's stat."""

    czxid: int
    """Number of the transaction that created the node."""
    mzxid: int
    """Transaction of the last change of its data."""
    created_ms: int
    modified_ms: int
    version: int
    ephemeral_owner: int
    """Session id; 0 for persistent nodes."""
    children_count: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node. Reply: the node's path and stat."""

    path: str
    data: bytes
    mode: CreateMode = CreateMode.PERSISTENT


@dataclass(frozen=True, slots=True)
class SetData:
    """Sets the data of a node. Reply: the stat."""

    path: str
    data: bytes
    version: int = ANY


@dataclass(frozen=True, slots=True)
class Remove:
    """Deletes a node. Empty reply."""

    path: str
    version: int = ANY


@dataclass(frozen=True, slots=True)
class CheckNode:
    """Refuses the multi unless a node has the version. Empty reply."""

    path: str
    version: int


Operation = Create | SetData | Remove | CheckNode


@dataclass(frozen=True, slots=True)
class ReplyOutcome:
    """Outcome of one operation of a multi."""

    error: int
    path: str = ""
    """Path of a created node, with its counter; empty for other operations."""
    stat: NodeStat | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A watched node changed. `type` may be one that EventType does not have."""

    type: int
    path: str


_OPEN_ACL: Final = pack_int(1) + pack_int(31) + pack_string("world") + pack_string("anyone")
"""All clients may do everything, as BookKeeper's own clients set it."""

_MULTI_END: Final = pack_int(-1) + pack_bool(True) + pack_int(-1)
_OPCODES: Final = {
    Create: Opcode.CREATE,
    SetData: Opcode.SET_DATA,
    Remove: Opcode.DELETE,
    CheckNode: Opcode.CHECK,
}


def pack_operation(operation: Operation) -> bytes:
    """The record of a change."""
    match operation:
        case Create(path, data, mode):
            return pack_string(path) + pack_buffer(data) + _OPEN_ACL + pack_int(mode)
        case SetData(path, data, version):
            return pack_string(path) + pack_buffer(data) + pack_int(version)
        case Remove(path, version) | CheckNode(path, version):
            return pack_string(path) + pack_int(version)


def pack_multi(operations: Sequence[Operation]) -> bytes:
    """The record of a multi: changes that are applied all or none."""
    parts = []
    for operation in operations:
        parts += [pack_int(_OPCODES[type(operation)]), b"\x00", pack_int(-1), pack_operation(operation)]
    return b"".join((*parts, _MULTI_END))


def read_multi(reader: JuteReader) -> list[ReplyOutcome]:
    """The record of the reply to a multi. Raises JuteError."""
    outcomes: list[ReplyOutcome] = []
    while True:
        opcode, done, _ = reader.int32(), reader.flag(), reader.int32()
        if done:
            return outcomes
        match opcode:
            case -1:
                outcomes.append(ReplyOutcome(reader.int32()))
            case Opcode.CREATE:
                outcomes.append(ReplyOutcome(Code.OK, reader.string(), read_stat(reader)))
            case Opcode.SET_DATA:
                outcomes.append(ReplyOutcome(Code.OK, stat=read_stat(reader)))
            case Opcode.DELETE | Opcode.CHECK:
                outcomes.append(ReplyOutcome(Code.OK))
            case _:
                raise JuteError(f"a result of opcode {opcode} in a multi")


def pack_path(path: str) -> bytes:
    """The record of a sync."""
    return pack_string(path)


def pack_read(path: str) -> bytes:
    """The record of a read that leaves no watch."""
    return pack_string(path) + pack_bool(False)


def pack_add_watch(path: str) -> bytes:
    """The record that requests events of a node and all below it, until the connection ends."""
    return pack_string(path) + pack_int(1)


def read_stat(reader: JuteReader) -> NodeStat:
    """A stat: czxid, mzxid, ctime, mtime i64; version, cversion, aversion i32; ephemeralOwner i64;
    dataLength, numChildren i32; pzxid i64."""
    czxid, mzxid, created, modified = reader.int64(), reader.int64(), reader.int64(), reader.int64()
    version, _, _ = reader.int32(), reader.int32(), reader.int32()
    owner = reader.int64()
    _, children, _ = reader.int32(), reader.int32(), reader.int64()
    return NodeStat(czxid, mzxid, created, modified, version, owner, children)


def pack_connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The frame that opens or resumes a session; session 0 is a new one."""
    body = (
        pack_int(0)
        + pack_long(last_zxid)
        + pack_int(timeout_ms)
        + pack_long(session_id)
        + pack_buffer(password)
        + pack_bool(False)
    )
    return pack_buffer(body)


def pack_request(xid: int, opcode: int, record: bytes) -> bytes:
    """The frame of a request."""
    return pack_int(len(record) + 8) + pack_int(xid) + pack_int(opcode) + record
