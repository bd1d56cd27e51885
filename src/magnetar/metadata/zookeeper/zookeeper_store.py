"""The metadata store on ZooKeeper.

`writes.py` describes how a write is composed, `node_writer.py` how its outcome is found after a lost
connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from magnetar.metadata import paths
from magnetar.metadata.remote_store import RemoteStore
from magnetar.metadata.sorted_names import in_order
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    BadVersionError,
    Change,
    Check,
    Delete,
    HasChildrenError,
    NotFoundError,
    Notification,
    Operation,
    Put,
    SessionEvent,
    Stat,
    Value,
    check_count,
)
from magnetar.metadata.zookeeper.link import Address, ZooKeeperLink
from magnetar.metadata.zookeeper.markers import WRITERS
from magnetar.metadata.zookeeper.node_writer import NodeWriter
from magnetar.metadata.zookeeper.protocol import CreateMode, Event, EventType, NodeStat
from magnetar.metadata.zookeeper.writes import Step

SESSION_TIMEOUT_MS: Final = 30_000
CALL_TIMEOUT_S: Final = 30.0

_HIDDEN: Final = frozenset({"/zookeeper", WRITERS})
"""Nodes at the top that do not belong to the tree: the server's own, and those of markers."""

_CHANGES: Final = {
    EventType.CREATED: Change.CREATED,
    EventType.DELETED: Change.DELETED,
    EventType.DATA_CHANGED: Change.MODIFIED,
}


class ZooKeeperMetadataStore(RemoteStore):
    """A `MetadataStore` on an ensemble of ZooKeeper 3.6 or newer. Made by `open`.

    Differences from other stores: An ephemeral value has no children. Deleting the parent of sequential
    values ends their counter. A parent that another program made is an empty value. `delete_recursive` is not
    atomic. The first version of a value put at an implied node is not 0.
    """

    def __init__(
        self, addresses: Sequence[Address], root: str, session_timeout_ms: int, call_timeout_s: float
    ) -> None:
        """Use `open`."""
        super().__init__("zookeeper store")
        self._root = "" if root == paths.ROOT else root
        self._link = ZooKeeperLink(
            addresses,
            session_timeout_ms=session_timeout_ms,
            call_timeout_s=call_timeout_s,
            on_event=self._event,
            on_session=self._session_changed,
        )
        self._writer = NodeWriter(self._link)

    @classmethod
    async def open(
        cls,
        addresses: Sequence[Address],
        *,
        root: str = paths.ROOT,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> ZooKeeperMetadataStore:
        """Opens a session with one of the servers.

        `root`: the node that is this store's "/". `session_timeout_ms`: milliseconds that ephemeral values
        stay without contact; servers limit it to 2 to 20 of their ticks. `call_timeout_s`: seconds that a
        call waits for a connection. Raises StoreUnreachableError.
        """
        paths.check(root)
        store = cls(addresses, root, session_timeout_ms, call_timeout_s)
        try:
            await store._writer.begin(store._root)
        except BaseException:
            await store.close()
            raise
        store._tasks.spawn(store._writer.sweep())
        return store

    async def get(self, path: str) -> Value | None:
        self._check_open()
        paths.split(path)
        found = await self._writer.read(self._at(path))
        if found is None or found.implied:
            return None
        return Value(found.data, self._stat(path, found.stat))

    async def children(self, path: str) -> list[str]:
        self._check_open()
        paths.check(path)
        names = await self._writer.children(self._at(path) or paths.ROOT)
        if not self._root and path == paths.ROOT:
            names = [name for name in names if f"/{name}" not in _HIDDEN]
        return await in_order(names)

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        """See `MetadataStore.put`. After a cancellation a write may or may not have taken effect.

        Every write raises OutcomeUnknownError when its answer was lost and no server tells the outcome.
        """
        self._check_open()
        paths.split(path)
        mode = CreateMode(CreateMode.EPHEMERAL * ephemeral | CreateMode.SEQUENTIAL * sequential)
        step = Step(Put(self._at(path), data, expected_version), mode)
        with self._own_paths():
            (outcome,) = await self._writer.write([step])
        assert outcome.stat is not None
        return self._stat(self._from(outcome.path) if sequential else path, outcome.stat, ephemeral=ephemeral)

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        self._check_open()
        paths.split(path)
        await self._check_creation(path, expected_creation)
        with self._own_paths():
            await self._writer.write([Step(Delete(self._at(path), expected_version))])
        await self._writer.prune(self._at(path), self._root)

    async def delete_recursive(self, path: str) -> None:
        self._check_open()
        paths.check(path)
        top = self._at(path)
        if path != paths.ROOT:
            await self._delete_tree(top)
            await self._writer.prune(top, self._root)
            return
        for name in await self.children(path):
            await self._delete_tree(f"{top}/{name}")

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._check_open()
        if not operations:
            return []
        check_count(operations)
        steps = []
        for operation in operations:
            paths.split(operation.path)
            if isinstance(operation, Delete):
                await self._check_creation(operation.path, operation.expected_creation)
            if isinstance(operation, Check):
                await self._check_valued(operation)
            at = self._at(operation.path)
            match operation:
                case Put(_, data, expected):
                    steps.append(Step(Put(at, data, expected)))
                case Delete(_, expected):
                    steps.append(Step(Delete(at, expected)))
                case Check(_, expected):
                    steps.append(Step(Check(at, expected)))
        with self._own_paths():
            outcomes = await self._writer.write(steps)
        for operation in operations:
            if isinstance(operation, Delete):
                await self._writer.prune(self._at(operation.path), self._root)
        return [
            None if outcome.stat is None else self._stat(operation.path, outcome.stat)
            for operation, outcome in zip(operations, outcomes, strict=True)
        ]

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        remove = super().watch(prefix, callback)
        node = self._at(prefix) or paths.ROOT
        self._link.watch(node)
        active = True

        def cancel() -> None:
            nonlocal active
            if active:
                active = False
                remove()
                self._link.unwatch(node)

        return cancel

    async def sync(self) -> None:
        self._check_open()
        await self._writer.sync(self._root or paths.ROOT)

    async def _leave(self) -> None:
        await self._writer.end()
        await self._link.close()

    async def _check_creation(self, path: str, expected: int) -> None:
        """Raises BadVersionError for a value that was made anew. What is gone is for the removal to tell."""
        if expected == ANY_CREATION:
            return
        found = await self._writer.read(self._at(path))
        if found is not None and found.stat.czxid != expected:
            raise BadVersionError(path, found.stat.version, found.stat.version)

    async def _check_valued(self, condition: Check) -> None:
        """Raises BadVersionError for a node that exists for its children only: it has version 0, as a new
        value has, and the server knows no difference."""
        if condition.expected_version == 0 and await self.get(condition.path) is None:
            raise BadVersionError(condition.path, 0, None)

    # -- paths ---------------------------------------------------------------------------------

    def _at(self, path: str) -> str:
        """The server's node for a path; "" for the root of a store whose root is "/"."""
        return self._root if path == paths.ROOT else f"{self._root}{path}"

    def _from(self, node: str) -> str:
        return node[len(self._root) :] or paths.ROOT

    @contextlib.contextmanager
    def _own_paths(self) -> Iterator[None]:
        """Makes errors raised within name paths of this store, not of the server."""
        try:
            yield
        except BadVersionError as error:
            raise BadVersionError(self._from(error.path), error.expected, error.actual) from error.__cause__
        except NotFoundError as error:
            raise NotFoundError(self._from(error.path)) from error.__cause__
        except HasChildrenError as error:
            raise HasChildrenError(self._from(error.path)) from error.__cause__

    def _stat(self, path: str, stat: NodeStat, *, ephemeral: bool = False) -> Stat:
        return Stat(
            path=path,
            version=stat.version,
            created_ms=stat.created_ms,
            modified_ms=stat.modified_ms,
            ephemeral=ephemeral or stat.ephemeral_owner != 0,
            created_by_self=ephemeral or 0 != stat.ephemeral_owner == self._link.session_id,
            creation=stat.czxid,
        )

    # -- what servers tell ---------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        if event.type not in _CHANGES or not event.path.startswith(f"{self._root}/"):
            return
        path = self._from(event.path)
        change = _CHANGES[EventType(event.type)]
        told = [Notification(change, path)]
        if change is not Change.MODIFIED:
            told.append(Notification(Change.CHILDREN_CHANGED, paths.split(path)[0]))
        self._watches.announce(told)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.SESSION_RENEWED:
            self._tasks.spawn(self._writer.show_alive())
        self._sessions.announce(event)

    async def _delete_tree(self, node: str) -> None:
        while True:
            for name in await self._writer.children(node):
                await self._delete_tree(f"{node}/{name}")
            if await self._writer.remove(node):
                return
