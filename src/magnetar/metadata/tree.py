"""The effects of writes on the tree of a metadata store, on any table of nodes.

The table reads and changes single nodes; this module decides which. A node without a value is *implied*: it
exists because it has children, and is removed with the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from magnetar.base.clock import Clock
from magnetar.metadata import paths
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    MUST_NOT_EXIST,
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

SEQUENCE_DIGITS: Final = 10
"""Digits of a sequential put's counter, as in ZooKeeper; BookKeeper's ids depend on it."""


class Node(NamedTuple):
    """A node with a value."""

    data: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    session: int
    """Session that created the value."""

    def stat(self, path: str, session: int) -> Stat:
        """The Stat for a reader of session `session`."""
        return Stat(
            path=path,
            version=self.version,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
            ephemeral=self.ephemeral,
            created_by_self=self.session == session,
            creation=self.created_ms,
        )

    def value(self, path: str, session: int) -> Value:
        """The value for a reader of session `session`."""
        return Value(self.data, self.stat(path, session))


class NodeTable(Protocol):
    """Nodes by parent path and name. The root itself is not in the table."""

    def get(self, parent: str, name: str) -> Node | None:
        """The node, or None when it is absent or only implied."""

    def listed(self, parent: str, name: str) -> bool:
        """Whether the node exists, with a value or implied."""

    def has_children(self, path: str) -> bool: ...

    def store(self, parent: str, name: str, node: Node | None) -> None:
        """Writes the node; None makes it an implied one."""

    def remove(self, parent: str, name: str) -> None:
        """Removes the node, which must exist."""

    def below(self, path: str) -> list[tuple[str, str, bool]]:
        """Parent, name and "has a value" of everything below `path`, children before their parents."""

    def remove_below(self, path: str) -> None:
        """Removes everything below `path`."""

    def next_sequence(self, parent: str) -> int:
        """The next number of the parent: 0, 1, 2, …; a number is never returned twice."""

    def ephemerals(self) -> list[tuple[str, str]]:
        """Parent and name of every ephemeral node."""


class Tree:
    """The write operations. Each appends its changes to `notifications`.

    A sequential put or a transaction that raises may have changed the table: the caller undoes that. The
    others raise before they change anything.
    """

    def __init__(self, nodes: NodeTable, clock: Clock, session: int) -> None:
        self._nodes = nodes
        self._clock = clock
        self._session = session

    def put(
        self,
        notifications: list[Notification],
        path: str,
        data: bytes,
        expected_version: int | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """See `MetadataStore.put`. An existing value keeps its `ephemeral`."""
        parent, name = paths.split(path)
        if sequential:
            parent, name = self._sequential_name(parent, name)
            path = paths.join(parent, name)
        old = self._nodes.get(parent, name)
        actual = None if old is None else old.version
        if expected_version is not ANY_VERSION:
            expected_found = None if expected_version == MUST_NOT_EXIST else expected_version
            if actual != expected_found:
                raise BadVersionError(path, expected_version, actual)
        now_ms = self._clock.now_ms()
        if old is not None:
            node = Node(data, old.version + 1, old.created_ms, now_ms, old.ephemeral, old.session)
            self._nodes.store(parent, name, node)
            notifications.append(Notification(Change.MODIFIED, path))
        else:
            node = Node(data, 0, now_ms, now_ms, ephemeral, self._session)
            listed = self._nodes.listed(parent, name)
            self._nodes.store(parent, name, node)
            notifications.append(Notification(Change.CREATED, path))
            if not listed:
                self._imply_ancestors(notifications, parent)
        return node.stat(path, self._session)

    def delete(
        self,
        notifications: list[Notification],
        path: str,
        expected_version: int | None,
        expected_creation: int = ANY_CREATION,
    ) -> None:
        """See `MetadataStore.delete`."""
        parent, name = paths.split(path)
        old = self._nodes.get(parent, name)
        if old is None:
            raise NotFoundError(path)
        if expected_version is not ANY_VERSION and expected_version != old.version:
            raise BadVersionError(path, expected_version, old.version)
        if expected_creation not in (ANY_CREATION, old.created_ms):
            raise BadVersionError(path, old.version, old.version)
        if self._nodes.has_children(path):
            raise HasChildrenError(path)
        self._nodes.remove(parent, name)
        notifications.append(Notification(Change.DELETED, path))
        self._prune_ancestors(notifications, parent)

    def delete_recursive(self, notifications: list[Notification], path: str) -> None:
        """See `MetadataStore.delete_recursive`; the root stands for everything."""
        paths.check(path)
        doomed = self._nodes.below(path)
        bereft = dict.fromkeys(parent for parent, _, _ in doomed)
        for parent, name, valued in doomed:
            if valued:
                notifications.append(Notification(Change.DELETED, paths.join(parent, name)))
        self._nodes.remove_below(path)
        notifications.extend(Notification(Change.CHILDREN_CHANGED, parent) for parent in bereft)
        if path == paths.ROOT:
            return
        parent, name = paths.split(path)
        if self._nodes.listed(parent, name):
            if self._nodes.get(parent, name) is not None:
                notifications.append(Notification(Change.DELETED, path))
            self._nodes.remove(parent, name)
            self._prune_ancestors(notifications, parent)

    def transact(
        self, notifications: list[Notification], operations: Sequence[Operation]
    ) -> list[Stat | None]:
        """See `MetadataStore.transact`. Each operation sees the changes of those before it."""
        stats: list[Stat | None] = []
        for operation in operations:
            match operation:
                case Put(path, data, expected_version):
                    stats.append(self.put(notifications, path, data, expected_version))
                case Delete(path, expected_version, creation):
                    self.delete(notifications, path, expected_version, creation)
                    stats.append(None)
                case Check(path, expected_version):
                    self._check(path, expected_version)
                    stats.append(None)
        return stats

    def _check(self, path: str, expected_version: int) -> None:
        node = self._nodes.get(*paths.split(path))
        if node is None or node.version != expected_version:
            raise BadVersionError(path, expected_version, None if node is None else node.version)

    def end_sessions(self, notifications: list[Notification]) -> None:
        """Removes every ephemeral value; one that has children stays as an implied node."""
        for parent, name in self._nodes.ephemerals():
            path = paths.join(parent, name)
            notifications.append(Notification(Change.DELETED, path))
            if self._nodes.has_children(path):
                self._nodes.store(parent, name, None)
            else:
                self._nodes.remove(parent, name)
                self._prune_ancestors(notifications, parent)

    def _sequential_name(self, parent: str, prefix: str) -> tuple[str, str]:
        while True:
            name = f"{prefix}{self._nodes.next_sequence(parent):0{SEQUENCE_DIGITS}d}"
            # A plain put may have taken the name before the counter reached it.
            if not self._nodes.listed(parent, name):
                return parent, name

    def _imply_ancestors(self, notifications: list[Notification], path: str) -> None:
        """After a child of `path` was created: makes missing ancestors, and notes every changed listing."""
        while True:
            notifications.append(Notification(Change.CHILDREN_CHANGED, path))
            if path == paths.ROOT:
                return
            parent, name = paths.split(path)
            if self._nodes.listed(parent, name):
                return
            self._nodes.store(parent, name, None)
            path = parent

    def _prune_ancestors(self, notifications: list[Notification], path: str) -> None:
        """After a child of `path` was removed: removes implied ancestors without children."""
        while True:
            notifications.append(Notification(Change.CHILDREN_CHANGED, path))
            if path == paths.ROOT or self._nodes.has_children(path):
                return
            parent, name = paths.split(path)
            if self._nodes.get(parent, name) is not None:
                return
            self._nodes.remove(parent, name)
            path = parent
