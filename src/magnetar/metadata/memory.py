"""The backend that lives in the process's memory, for `--ephemeral` and for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from magnetar.base.clock import Clock
from magnetar.metadata import paths
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    Notification,
    Operation,
    SessionEvent,
    Stat,
    Value,
    check_count,
)
from magnetar.metadata.tree import Node, Tree
from magnetar.metadata.watched_store import WatchedStore

_T = TypeVar("_T")

_SESSION = 1


class DictNodes:
    """A `NodeTable` of dicts that can undo the changes since `mark`."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, Node | None]] = {}
        self._sequences: defaultdict[str, int] = defaultdict(int)
        self._undo: list[Callable[[], None]] = []

    def mark(self) -> None:
        """Keeps every change up to here: `undo` goes back to this state."""
        self._undo.clear()

    def undo(self) -> None:
        """Undoes every change since `mark`, except that used sequence numbers stay used."""
        while self._undo:
            self._undo.pop()()

    def get(self, parent: str, name: str) -> Node | None:
        return self._children.get(parent, {}).get(name)

    def listed(self, parent: str, name: str) -> bool:
        return name in self._children.get(parent, {})

    def has_children(self, path: str) -> bool:
        return path in self._children

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def store(self, parent: str, name: str, node: Node | None) -> None:
        siblings = self._children.setdefault(parent, {})
        if name in siblings:
            old = siblings[name]
            self._undo.append(lambda: self._set(parent, name, old))
        else:
            self._undo.append(lambda: self._drop(parent, name))
        siblings[name] = node

    def remove(self, parent: str, name: str) -> None:
        old = self._children[parent][name]
        self._undo.append(lambda: self._set(parent, name, old))
        self._drop(parent, name)

    def below(self, path: str) -> list[tuple[str, str, bool]]:
        found: list[tuple[str, str, bool]] = []
        stack = [path]
        while stack:
            parent = stack.pop()
            for name, node in self._children.get(parent, {}).items():
                found.append((parent, name, node is not None))
                stack.append(paths.join(parent, name))
        found.reverse()
        return found

    def remove_below(self, path: str) -> None:
        for parent, name, _ in self.below(path):
            self.remove(parent, name)

    def next_sequence(self, parent: str) -> int:
        number = self._sequences[parent]
        self._sequences[parent] += 1
        return number

    def ephemerals(self) -> list[tuple[str, str]]:
        return [
            (parent, name)
            for parent, siblings in self._children.items()
            for name, node in siblings.items()
            if node is not None and node.ephemeral
        ]

    def _set(self, parent: str, name: str, node: Node | None) -> None:
        self._children.setdefault(parent, {})[name] = node

    def _drop(self, parent: str, name: str) -> None:
        siblings = self._children[parent]
        del siblings[name]
        if not siblings:
            del self._children[parent]


class MemoryMetadataStore(WatchedStore):
    """A `MetadataStore` without durability. Its one session lasts as long as the object."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._nodes = DictNodes()
        self._tree = Tree(self._nodes, clock, _SESSION)

    async def get(self, path: str) -> Value | None:
        self._check_open()
        node = self._nodes.get(*paths.split(path))
        return None if node is None else node.value(path, _SESSION)

    async def children(self, path: str) -> list[str]:
        self._check_open()
        paths.check(path)
        return self._nodes.children(path)

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        return self._write(
            lambda told: self._tree.put(
                told, path, data, expected_version, ephemeral=ephemeral, sequential=sequential
            )
        )

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        self._write(lambda told: self._tree.delete(told, path, expected_version, expected_creation))

    async def delete_recursive(self, path: str) -> None:
        self._write(lambda told: self._tree.delete_recursive(told, path))

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_count(operations)
        return self._write(lambda told: self._tree.transact(told, operations))

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """Never calls: the session lasts as long as the store."""
        return lambda: None

    async def sync(self) -> None:
        """Does nothing: there is one writer, so every read sees the newest value."""
        self._check_open()

    async def close(self) -> None:
        if self._closed:
            return
        self._write(self._tree.end_sessions)
        self._closed = True
        self._watches.clear()

    def _write(self, operation: Callable[[list[Notification]], _T]) -> _T:
        self._check_open()
        told: list[Notification] = []
        self._nodes.mark()
        try:
            result = operation(told)
        except BaseException:
            self._nodes.undo()
            raise
        self._watches.announce(told)
        return result
