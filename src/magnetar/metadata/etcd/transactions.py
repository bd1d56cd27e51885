"""Writes of the store as etcd's transactions. Pure.

Theory of operation. A write reads the keys that it concerns at one revision. It is then tried on these
values, which either raises or gives the changes. The changes are sent as one transaction that takes effect
only if the keys still are as they were read. Otherwise the write begins again.

Each transaction also moves a *marker*, a key that this store alone uses, from a value that only this
transaction expects to a value never used before. When the connection breaks before the answer, a second
transaction moves the marker from the old value to a third one, if it still has the old one. After that the
write either has taken effect or never will: its comparison fails from then on, even if etcd still has it in
its log.

    key                the path in UTF-8
    version            etcd's, counted from 0 instead of 1
    ephemeral          the key has the session's lease
    sequential         the parent is put; its new version is the number (as Pulsar does)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.metadata import paths
from magnetar.metadata.etcd.etcd_pb2 import (
    Compare,
    DeleteRangeRequest,
    KeyValue,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    MUST_NOT_EXIST,
    BadVersionError,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Operation,
    Put,
    Stat,
)

SEQUENCE_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A key as it was read."""

    mod_revision: int
    """Revision of the last change; 0 when the key does not exist."""
    version: int = -1
    lease: int = 0
    has_children: bool = False
    """Whether keys lie below; known only for keys that are to be deleted."""
    create_revision: int = 0


@dataclass(slots=True)
class _Now:
    """A key after the changes so far."""

    version: int | None
    lease: int
    has_children: bool


@dataclass(frozen=True, slots=True)
class Move:
    """How a transaction moves its marker."""

    marker: bytes
    before: bytes
    """The marker's value before the transaction; empty when the marker does not exist yet."""
    after: bytes
    lease: int
    """The store's lease; its markers vanish with it."""


@dataclass(slots=True)
class TransactionPlan:
    """The changes of one write, computed from the values that were read."""

    stats: list[Stat | None] = field(default_factory=list)
    puts: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Data and lease by path."""
    deletes: set[str] = field(default_factory=set)

    @property
    def changed(self) -> list[str]:
        """The paths of whose change etcd tells: none that is only compared, or made and deleted in one."""
        return [*self.puts, *self.deletes]

    def request(self, seen: Mapping[str, SeenNode], root: str, move: Move) -> TxnRequest:
        """The request for the transaction. `root` is the prefix of every path."""
        compares = [marker_is(move.marker, move.before)]
        for path, known in seen.items():
            key = f"{root}{path}".encode()
            compares.append(
                Compare(result=Compare.EQUAL, target=Compare.MOD, key=key, mod_revision=known.mod_revision)
            )
            if path in self.deletes:
                compares.append(without_children(key))
        changes = [
            RequestOp(request_put=PutRequest(key=f"{root}{path}".encode(), value=data, lease=lease))
            for path, (data, lease) in self.puts.items()
        ]
        changes += [
            RequestOp(request_delete_range=DeleteRangeRequest(key=f"{root}{path}".encode()))
            for path in self.deletes
        ]
        mark = PutRequest(key=move.marker, value=move.after, lease=move.lease)
        changes.append(RequestOp(request_put=mark))
        return TxnRequest(compare=compares, success=changes)


def plan(
    writes: Sequence[Operation], seen: Mapping[str, SeenNode], *, own_lease: int, lease: int = 0
) -> TransactionPlan:
    """Tries the writes, in order, on the keys as they were read: `seen` has every path of them.

    `lease`: lease of new values; 0 for values that are not ephemeral. Raises BadVersionError, NotFoundError,
    HasChildrenError.
    """
    now = {
        path: _Now(known.version if known.mod_revision else None, known.lease, known.has_children)
        for path, known in seen.items()
    }
    made = TransactionPlan()
    for write in writes:
        key = now[write.path]
        match write:
            case Check(path, expected):
                _check_version(path, expected, key.version)
                made.stats.append(None)
            case Put(path, data, expected):
                _check_version(path, expected, key.version)
                fresh = key.version is None
                key.version = 0 if key.version is None else key.version + 1
                key.lease = lease if fresh else key.lease
                made.deletes.discard(path)
                made.puts[path] = (data, key.lease)
                made.stats.append(_stat(path, key.version, key.lease, own_lease))
            case Delete(path, expected, creation):
                if key.version is None:
                    raise NotFoundError(path)
                _check_version(path, expected, key.version)
                if creation not in (ANY_CREATION, seen[path].create_revision):
                    raise BadVersionError(path, key.version, key.version)
                if key.has_children:
                    raise HasChildrenError(path)
                key.version = None
                made.puts.pop(path, None)
                if seen[path].mod_revision:
                    made.deletes.add(path)
                made.stats.append(None)
    # etcd counts a key's changes by transactions, and goes on where the key was deleted and made again.
    for index, stat in enumerate(made.stats):
        if stat is not None and stat.path in made.puts:
            made.stats[index] = stat._replace(version=seen[stat.path].version + 1)
    return made


def stat_of(path: str, found: KeyValue, own_lease: int) -> Stat:
    """The Stat of a key for readers."""
    stat = _stat(path, found.version - 1, found.lease, own_lease)
    return stat._replace(creation=found.create_revision)


def seen_of(found: KeyValue | None, *, has_children: bool = False) -> SeenNode:
    """A key from the answer to a read; `found` is None when the key does not exist."""
    if found is None:
        return SeenNode(0, has_children=has_children)
    return SeenNode(found.mod_revision, found.version - 1, found.lease, has_children, found.create_revision)


def sequential_path(prefix: str, parent_version: int) -> str:
    """The path of a sequential value; `parent_version` is what etcd counts, from 1 on."""
    return f"{prefix}{parent_version:0{SEQUENCE_DIGITS}d}"


def below(key: bytes) -> tuple[bytes, bytes]:
    """First key and end of everything below a path."""
    prefix = key if key.endswith(b"/") else key + b"/"
    return prefix, prefix[:-1] + b"0"


def without_children(key: bytes) -> Compare:
    """A comparison that holds when no key lies below a path."""
    first, end = below(key)
    return Compare(result=Compare.EQUAL, target=Compare.CREATE, key=first, range_end=end, create_revision=0)


def marker_is(marker: bytes, value: bytes) -> Compare:
    """A comparison that holds when the marker has the value; for an empty value, when it does not exist."""
    if not value:
        return Compare(result=Compare.EQUAL, target=Compare.CREATE, key=marker, create_revision=0)
    return Compare(result=Compare.EQUAL, target=Compare.VALUE, key=marker, value=value)


def fence(move: Move, fenced: bytes) -> TxnRequest:
    """Moves the marker to `fenced`, so that no transaction with `move` takes effect later; when the marker
    already moved, reads it."""
    return TxnRequest(
        compare=[marker_is(move.marker, move.before)],
        success=[RequestOp(request_put=PutRequest(key=move.marker, value=fenced))],
        failure=[RequestOp(request_range=RangeRequest(key=move.marker))],
    )


def count(parent: bytes) -> TxnRequest:
    """Adds 1 to the version of a parent; its value does not change."""
    return TxnRequest(
        compare=[Compare(result=Compare.GREATER, target=Compare.VERSION, key=parent, version=0)],
        success=[
            RequestOp(request_put=PutRequest(key=parent, ignore_value=True, ignore_lease=True, prev_kv=True))
        ],
        failure=[RequestOp(request_put=PutRequest(key=parent))],
    )


def counted(answer: TxnResponse) -> int:
    """The version from the answer to `count`, from 1 on."""
    return answer.responses[0].response_put.prev_kv.version + 1 if answer.succeeded else 1


def reads(concerned: Sequence[str], root: str) -> TxnRequest:
    """Reads paths at one revision: each key, and whether keys lie below it."""
    requests = []
    for path in concerned:
        key = f"{root}{path}".encode()
        first, end = below(key)
        requests.append(RequestOp(request_range=RangeRequest(key=key)))
        requests.append(
            RequestOp(request_range=RangeRequest(key=first, range_end=end, limit=1, keys_only=True))
        )
    return TxnRequest(success=requests)


def ancestors(path: str) -> list[str]:
    """Every path above `path`, the nearest first, the root last."""
    above = []
    while path != paths.ROOT:
        path, _ = paths.split(path)
        above.append(path)
    return above


def _check_version(path: str, expected: int | None, actual: int | None) -> None:
    if expected is ANY_VERSION:
        return
    if actual != (None if expected == MUST_NOT_EXIST else expected):
        raise BadVersionError(path, expected, actual)


def _stat(path: str, version: int, lease: int, own_lease: int) -> Stat:
    # etcd keeps no times.
    return Stat(path, version, 0, 0, ephemeral=lease != 0, created_by_self=lease == own_lease != 0)
