"""Writes of the store as ZooKeeper's operations, and the meaning of their errors. Pure.

Theory of operation. Every write is one multi whose last operation sets a *marker*, a node that this store
alone uses, to a value never used before. When the connection breaks before the answer, a sync and a read of
the marker show whether the multi took effect: a multi is applied as a whole, and ZooKeeper refuses requests
of an older connection once the session has a new one. So the outcome is certain, even when another process
wrote the same bytes to the same path. The marker's stat has the transaction's number and time, which identify
the nodes that it made.

Whether a path holds a value is not known before a write. A write assumes the likelier case, and is planned
again when the server's answer shows the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.metadata import paths
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    BadVersionError,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Put,
)
from magnetar.metadata.store import Operation as StoreOperation
from magnetar.metadata.zookeeper.protocol import (
    ANY,
    CheckNode,
    Code,
    Create,
    CreateMode,
    NodeStat,
    Operation,
    Remove,
    ReplyOutcome,
    SetData,
)

IMPLIED: Final = b"\x00implied"
"""Value of nodes that exist only for their children: for the store they hold no value. Parents that other
programs made count as values, possibly empty ones."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node as it was read."""

    data: bytes
    stat: NodeStat

    @property
    def implied(self) -> bool:
        return self.data == IMPLIED


class Belief(Enum):
    """What a plan assumes about the path of a Put."""

    VALUE = "value"
    NOTHING = "nothing"
    IMPLIED = "implied"
    """A node without a value, with the version in the step."""


@dataclass(slots=True)
class Step:
    """One write of a transaction, with the assumption about its path."""

    write: StoreOperation
    mode: CreateMode = CreateMode.PERSISTENT
    belief: Belief = Belief.NOTHING
    implied_version: int = 0
    parents: list[Create] = field(default_factory=list)
    """Missing nodes above the path. The same multi makes them, so that a refused write leaves nothing
    behind."""

    def __post_init__(self) -> None:
        if not isinstance(self.write, Put) or self.write.expected_version == MUST_NOT_EXIST:
            return
        # A value of a known version is there. An ephemeral one that may have any is likelier to be new.
        if self.mode is CreateMode.PERSISTENT or (
            self.mode is CreateMode.EPHEMERAL and self.write.expected_version is not ANY_VERSION
        ):
            self.belief = Belief.VALUE

    @property
    def changes(self) -> bool:
        """Whether it is more than a condition."""
        return not isinstance(self.write, Check)

    @property
    def makes(self) -> bool:
        """Whether it is taken to make a node, which needs those above it."""
        return isinstance(self.write, Put) and self.belief is Belief.NOTHING

    def operation(self) -> Operation:
        """The operation for the server."""
        match self.write:
            case Check(path, expected):
                return CheckNode(path, expected)
            case Delete(path, expected):
                return Remove(path, ANY if expected is ANY_VERSION else expected)
            case Put(path, data, expected):
                if self.belief is Belief.NOTHING:
                    return Create(path, data, self.mode)
                if self.belief is Belief.IMPLIED:
                    return SetData(path, data, self.implied_version)
                return SetData(path, data, ANY if expected is ANY_VERSION else expected)


@dataclass(frozen=True, slots=True)
class WritePart:
    """One operation of a multi, and its step."""

    step: Step
    operation: Operation
    makes_parent: bool = False


def parts_of(steps: Sequence[Step]) -> list[WritePart]:
    """The operations of all steps, in order."""
    parts = []
    for step in steps:
        parts += [WritePart(step, parent, makes_parent=True) for parent in step.parents]
        parts.append(WritePart(step, step.operation()))
    return parts


class Remedy(Enum):
    """What to do before a refused plan is tried again."""

    TRY_AGAIN = "try again"
    MAKE_PARENTS = "make parents"


def failed_index(outcomes: Sequence[ReplyOutcome]) -> int | None:
    """Index of the operation of a multi that was refused; None when all took effect."""
    for index, outcome in enumerate(outcomes):
        if outcome.error not in (Code.OK, Code.ROLLED_BACK):
            return index
    return None


def wants_look(error: int) -> bool:
    """Whether the node must be read to interpret the refusal."""
    return error in (Code.NODE_EXISTS, Code.BAD_VERSION, Code.NOT_EMPTY)


def learn(step: Step, error: int, found: FoundNode | None) -> Remedy:
    """Corrects the assumption of the step, or raises the error for its caller.

    `found`: the node as read after the refusal, if `wants_look` is true. Raises BadVersionError,
    NotFoundError, HasChildrenError, MetadataError.
    """
    path, expected = step.write.path, step.write.expected_version
    valued = None if found is None or found.implied else found
    actual = None if valued is None else valued.stat.version
    match error:
        case Code.NO_NODE if isinstance(step.write, Delete):
            raise NotFoundError(path)
        case Code.NO_NODE if isinstance(step.write, Check):
            raise BadVersionError(path, expected, None)
        case Code.NO_NODE if step.belief is Belief.NOTHING:
            return Remedy.MAKE_PARENTS
        case Code.NO_NODE if expected is ANY_VERSION or step.belief is Belief.IMPLIED:
            step.belief = Belief.NOTHING
        case Code.NO_NODE:
            raise BadVersionError(path, expected, None)
        case Code.NODE_EXISTS:
            _found_instead(step, found, valued)
        case Code.BAD_VERSION if step.belief is Belief.IMPLIED:
            step.belief = Belief.NOTHING
        case Code.BAD_VERSION if isinstance(step.write, Delete) and valued is None:
            raise NotFoundError(path)
        case Code.BAD_VERSION:
            raise BadVersionError(path, expected, actual)
        case Code.NOT_EMPTY if found is not None and found.implied:
            raise NotFoundError(path)
        case Code.NOT_EMPTY:
            raise HasChildrenError(path)
        case Code.NO_CHILDREN_FOR_EPHEMERALS:
            raise MetadataError(f"{path}: an ephemeral value cannot have children in ZooKeeper")
        case _:
            raise MetadataError(f"{path}: ZooKeeper refuses with error {error}")
    return Remedy.TRY_AGAIN


def _found_instead(step: Step, found: FoundNode | None, valued: FoundNode | None) -> None:
    """Corrects the assumption of a creation that met a node. Raises BadVersionError."""
    if found is None:
        return
    if valued is None:
        step.belief = Belief.IMPLIED
        step.implied_version = found.stat.version
    elif step.write.expected_version is ANY_VERSION:
        step.belief = Belief.VALUE
    else:
        raise BadVersionError(step.write.path, step.write.expected_version, valued.stat.version)


def outcome_by_marker(operation: Operation, marker: NodeStat, found: FoundNode | None) -> ReplyOutcome:
    """The outcome of an operation that took effect with the marker, when its answer was lost.

    `found`: the node as it is now; another process may have changed it since. Do not call this for sequential
    creations: their paths are not known.
    """
    match operation:
        case Remove() | CheckNode():
            return ReplyOutcome(Code.OK)
        case Create(path):
            stat = NodeStat(marker.mzxid, marker.mzxid, marker.modified_ms, marker.modified_ms, 0, 0, 0)
            return ReplyOutcome(Code.OK, path, stat)
        case SetData(path, _, expected):
            created_ms = marker.modified_ms if found is None else found.stat.created_ms
            if expected != ANY:
                version = expected + 1
            elif found is None:
                version = 0
            else:
                # Ours, or after another write one that is certainly not the newest any more: a comparison
                # with it fails.
                version = found.stat.version - (found.stat.mzxid != marker.mzxid)
            return ReplyOutcome(
                Code.OK, path, NodeStat(0, marker.mzxid, created_ms, marker.modified_ms, version, 0, 0)
            )


def ancestors(path: str) -> list[str]:
    """Every path above `path` but the root, the topmost first."""
    above = []
    parent, _ = paths.split(path)
    while parent != paths.ROOT:
        above.append(parent)
        parent, _ = paths.split(parent)
    above.reverse()
    return above
