"""The metadata store of a simulated cluster: one tree, sessions over connections that break.

A session outlives its connections, for a while. What a client asked for and heard no answer to may have
happened; once it is connected again nothing of the old connection can happen any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.metadata import paths
from magnetar.metadata.memory import DictNodes
from magnetar.metadata.store import (
    ANY_CREATION,
    ANY_VERSION,
    Notification,
    Operation,
    OutcomeUnknownError,
    SessionEvent,
    Stat,
    StoreClosedError,
    StoreUnreachableError,
    Value,
)
from magnetar.metadata.tree import Tree
from magnetar.metadata.watches import SessionWatches, Watches
from sim.cluster.loop import Process
from sim.cluster.wires import Channel, Wires

_T = TypeVar("_T")

STORE: Final = "store"
NOTICE_US: Final = 150_000
"""After so long without an answer a client gives its connection up."""
SESSION_US: Final = 450_000
"""After so long without its client a session ends."""
_RETRY_US: Final = 40_000

Written = Callable[[str, bytes | None], None]
"""Hears of every value that was written, None when it was deleted."""


class StoreNode:
    """The store itself; it does not fail."""

    def __init__(self, wires: Wires, clock: Clock, written: Written) -> None:
        self.wires = wires
        self.world = wires.world
        self.process = Process(STORE)
        self.nodes = DictNodes()
        self._clock = clock
        self._written = written
        self._sessions: dict[int, SimStore] = {}
        self._numbers = 0

    def new_session(self, client: SimStore) -> int:
        """Begins a session."""
        self._numbers += 1
        self._sessions[self._numbers] = client
        return self._numbers

    def is_alive(self, session: int) -> bool:
        """Whether the session has not ended."""
        return session in self._sessions

    def end(self, session: int) -> None:
        """Its ephemeral values vanish."""
        if session not in self._sessions:
            return
        del self._sessions[session]
        self.world.note("store: session", session, "ends")

        def expire(told: list[Notification]) -> None:
            tree = Tree(self.nodes, self._clock, session)
            for parent, name in self.nodes.ephemerals():
                node = self.nodes.get(parent, name)
                if node is not None and node.session == session:
                    tree.delete(told, paths.join(parent, name), ANY_VERSION)

        self.write(expire)

    def write(self, operation: Callable[[list[Notification]], _T]) -> _T:
        """Applies the operation as a whole or not at all, and notifies all watchers."""
        told: list[Notification] = []
        self.nodes.mark()
        try:
            result = operation(told)
        except BaseException:
            self.nodes.undo()
            raise
        for notification in told:
            node = self.nodes.get(*paths.split(notification.path)) if notification.path != "/" else None
            self._written(notification.path, None if node is None else node.data)
        for client in list(self._sessions.values()):
            client.announce(told)
        return result

    def tree(self, session: int) -> Tree:
        """The tree as a session sees it."""
        return Tree(self.nodes, self._clock, session)


class SimStore:
    """A client's `MetadataStore`."""

    def __init__(self, node: StoreNode, process: Process) -> None:
        self._node = node
        self._world = node.world
        self._loop = node.wires.loop
        self._process = process
        self._watches = Watches(self._watcher_failed)
        self._session_watches = SessionWatches()
        self._is_closed = False
        self._is_connected = True
        self._epoch = 0
        self._open: dict[int, tuple[asyncio.Future[Any], bool]] = {}
        self._asked = 0
        self._connect()
        self._session = node.new_session(self)
        process.ends.append(self._crashed)
        node.wires.heard_of_cuts(self._cut)

    def _cut(self, source: str, target: str) -> None:
        if {source, target} == {self._process.name, STORE} and self._process.is_up:
            # Clients ask now and then whether their connection still is one.
            self._loop.start(self._process, self._ping())

    async def _ping(self) -> None:
        with contextlib.suppress(MetadataError):
            await self.sync()

    def _connect(self) -> None:
        self._epoch += 1
        self._is_connected = True
        self._there = Channel(self._node.wires, self._process, self._node.process)
        self._here = Channel(self._node.wires, self._node.process, self._process)

    @property
    def session(self) -> int:
        """Number of the session, which may have ended."""
        return self._session

    def expired(self) -> None:
        """The store ends the session, and drops the connection, which the client notices when it can."""
        self._node.end(self._session)
        self._loop.within(self._process, self._dropped, self._epoch)

    def _dropped(self, epoch: int) -> None:
        if epoch == self._epoch and self._is_connected:
            self._lost()

    def _crashed(self) -> None:
        self._there.is_dead = self._here.is_dead = True
        self._world.at(SESSION_US, self._node.end, self._session)

    # -- connections --------------------------------------------------------------------------------

    def _silent(self, epoch: int, question: int) -> None:
        """Nothing was heard for long."""
        if epoch == self._epoch and question in self._open and self._is_connected:
            self._lost()

    def _lost(self) -> None:
        self._world.note(self._process.name, "loses its connection to the store")
        self._is_connected = False
        # What is on its way may still arrive there, as long as the client is not back.
        self._here.is_dead = True
        self._world.at(SESSION_US - NOTICE_US, self._expire, self._epoch, self._session)
        waiting, self._open = self._open, {}
        self._session_watches.announce(SessionEvent.CONNECTION_LOST)
        for future, writes in waiting.values():
            if not future.done():
                lost = "the connection was lost"
                future.set_exception(OutcomeUnknownError(lost) if writes else StoreUnreachableError(lost))
        self._retry()

    def _expire(self, epoch: int, session: int) -> None:
        if epoch == self._epoch and not self._is_closed:
            self._node.end(session)

    def _retry(self) -> None:
        delay_us = _RETRY_US + self._world.random.randrange(_RETRY_US)
        self._world.at(delay_us, self._loop.within, self._process, self._try)

    def _try(self) -> None:
        wires, name = self._node.wires, self._process.name
        if self._is_closed:
            return
        if wires.is_cut(name, STORE) or wires.is_cut(STORE, name):
            self._retry()
            return
        self._there.is_dead = True
        self._connect()
        if self._node.is_alive(self._session):
            self._world.note(name, "is back at the store")
            self._session_watches.announce(SessionEvent.RECONNECTED)
            return
        self._session = self._node.new_session(self)
        self._world.note(name, "has a new session", self._session)
        self._session_watches.announce(SessionEvent.SESSION_LOST)
        self._session_watches.announce(SessionEvent.SESSION_RENEWED)

    def announce(self, told: Sequence[Notification]) -> None:
        """From the store: these have changed."""
        if self._is_connected and self._process.is_up:
            self._here.send(self._watches.announce, list(told))

    def _watcher_failed(self, error: Exception, notification: Notification) -> None:
        self._loop.errors.append(f"a watcher failed on {notification}: {error!r}")

    # -- asking -------------------------------------------------------------------------------------

    async def _ask(self, work: Callable[[Tree], Any], *, writes: bool) -> Any:
        if self._is_closed:
            raise StoreClosedError("the metadata store is closed")
        if not self._is_connected:
            await asyncio.sleep(0)
            raise StoreUnreachableError("there is no connection to the store")
        self._asked += 1
        question = self._asked
        future: asyncio.Future[Any] = self._loop.create_future()
        self._open[question] = (future, writes)
        session, here = self._session, self._here

        def arrived() -> None:
            faults, random = self._node.wires.faults, self._world.random
            if writes and faults.breaks and random.random() < faults.breaks:
                here.is_dead = True
                if random.random() < 0.5:
                    return
            try:
                if not self._node.is_alive(session):
                    raise StoreUnreachableError("the session has ended")
                result, error = work(self._node.tree(session)), None
            except MetadataError as refusal:
                result, error = None, refusal
            here.send(answered, result, error)

        def answered(result: Any, error: MetadataError | None) -> None:
            if self._open.pop(question, None) is None or future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._there.send(arrived)
        self._world.at(NOTICE_US, self._loop.within, self._process, self._silent, self._epoch, question)
        return await future

    async def _write(self, operation: Callable[[Tree, list[Notification]], Any]) -> Any:
        node = self._node
        return await self._ask(lambda tree: node.write(lambda told: operation(tree, told)), writes=True)

    async def get(self, path: str) -> Value | None:
        parent, name = paths.split(path)
        session = self._session

        def look(_: Tree) -> Value | None:
            found = self._node.nodes.get(parent, name)
            return None if found is None else found.value(path, session)

        found: Value | None = await self._ask(look, writes=False)
        return found

    async def children(self, path: str) -> list[str]:
        found: list[str] = await self._ask(lambda _: self._node.nodes.children(path), writes=False)
        return found

    async def exists(self, path: str) -> bool:
        return await self.get(path) is not None

    async def put(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int | None = ANY_VERSION,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stat:
        stat: Stat = await self._write(
            lambda tree, told: tree.put(
                told, path, data, expected_version, ephemeral=ephemeral, sequential=sequential
            )
        )
        return stat

    async def delete(
        self, path: str, *, expected_version: int | None = ANY_VERSION, expected_creation: int = ANY_CREATION
    ) -> None:
        await self._write(lambda tree, told: tree.delete(told, path, expected_version, expected_creation))

    async def delete_recursive(self, path: str) -> None:
        await self._write(lambda tree, told: tree.delete_recursive(told, path))

    async def transact(self, operations: Sequence[Operation]) -> list[Stat | None]:
        stats: list[Stat | None] = await self._write(lambda tree, told: tree.transact(told, operations))
        return stats

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        return self._watches.add(prefix, callback)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._session_watches.add(callback)

    async def sync(self) -> None:
        await self._ask(lambda _: None, writes=False)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._there.send(self._node.end, self._session)
