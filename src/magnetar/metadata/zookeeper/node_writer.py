"""Reads and writes nodes, repeats reads after a lost connection, and finds out the outcome of writes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.metadata import paths
from magnetar.metadata.sorted_names import NAMES_PER_TURN
from magnetar.metadata.store import OutcomeUnknownError, StoreUnreachableError
from magnetar.metadata.zookeeper.link import LostInFlightError, ZooKeeperLink
from magnetar.metadata.zookeeper.markers import ABANDONED_MS, MARKERS_MAX, WRITERS, Marker, Markers
from magnetar.metadata.zookeeper.protocol import (
    Code,
    Create,
    CreateMode,
    NodeStat,
    Opcode,
    Operation,
    Remove,
    ReplyOutcome,
    SetData,
    pack_multi,
    pack_operation,
    pack_path,
    pack_read,
    read_multi,
    read_stat,
)
from magnetar.metadata.zookeeper.session import Reply
from magnetar.metadata.zookeeper.writes import (
    IMPLIED,
    FoundNode,
    Remedy,
    Step,
    WritePart,
    ancestors,
    failed_index,
    learn,
    outcome_by_marker,
    parts_of,
    wants_look,
)
from magnetar.runtime.tasks import gathered, yield_loop
from magnetar.runtime.turns import Turns

_log = logging.getLogger("magnetar.metadata")

ATTEMPTS_MAX: Final = 32
"""Most plans of one write. A refusal improves the next plan unless others keep changing the same nodes."""

_SEQUENTIAL: Final = (CreateMode.SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL)


class NodeWriter:
    """The nodes of one store, by their paths on the server."""

    def __init__(self, link: ZooKeeperLink) -> None:
        self._link = link
        self._markers = Markers(uuid.uuid4().hex)
        self._room = asyncio.Semaphore(MARKERS_MAX)
        self._turns = Turns()
        self._began = False

    async def begin(self, root: str) -> None:
        """Makes the nodes that the store needs. Raises StoreUnreachableError."""
        await self._link.connected()
        for path in [*ancestors(f"{root}/x"), *ancestors(f"{self._markers.folder}/x")]:
            await self._make(path, b"")
        self._began = True
        await self.show_alive()

    async def show_alive(self) -> None:
        """Makes the node that shows other stores that this one is open; needed once for each session."""
        create = Create(self._markers.alive, b"", CreateMode.EPHEMERAL)
        await self._again(Opcode.CREATE, pack_operation(create))

    async def end(self) -> None:
        """Deletes the markers if a server is connected; otherwise another store's `sweep` does so later."""
        if not self._began:
            return
        # The docstring's reason: the others delete them.
        with contextlib.suppress(MetadataError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._delete_folder(self._markers.folder)

    async def sweep(self) -> None:
        """Deletes the markers of stores that were killed more than a day ago."""
        own = await self._stat(self._markers.folder)
        for name in await self.children(WRITERS):
            folder = f"{WRITERS}/{name}"
            newest = await self._stat(folder)
            if own is None or newest is None or own.created_ms - newest.created_ms < ABANDONED_MS:
                continue
            if await self._stat(f"{folder}/alive") is None:
                _log.info("markers of a closed store are deleted: %s", folder)
                await self._delete_folder(folder)

    # -- reading -------------------------------------------------------------------------------

    async def read(self, node: str) -> FoundNode | None:
        """The node, or None."""
        reply = await self._again(Opcode.GET_DATA, pack_read(node))
        if reply.error == Code.NO_NODE:
            return None
        _check(reply, node)
        return FoundNode(reply.reader.buffer(), read_stat(reply.reader))

    async def children(self, node: str) -> list[str]:
        """Names of the children; empty when there is no node.

        The server tells all of them in one answer, which is read in several turns of the loop.
        """
        reply = await self._again(Opcode.GET_CHILDREN, pack_read(node))
        if reply.error == Code.NO_NODE:
            return []
        _check(reply, node)
        count = reply.reader.int32()
        names = reply.reader.strings(min(count, NAMES_PER_TURN))
        while len(names) < count:
            await yield_loop()
            names += reply.reader.strings(min(count - len(names), NAMES_PER_TURN))
        return names

    async def sync(self, node: str) -> None:
        """Waits until reads see all writes that returned before."""
        _check(await self._again(Opcode.SYNC, pack_path(node)), node)

    async def _stat(self, node: str) -> NodeStat | None:
        reply = await self._again(Opcode.EXISTS, pack_read(node))
        if reply.error == Code.NO_NODE:
            return None
        _check(reply, node)
        return read_stat(reply.reader)

    # -- writing -------------------------------------------------------------------------------

    async def write(self, steps: Sequence[Step]) -> list[ReplyOutcome]:
        """Applies all steps or none; returns their outcomes in order.

        Writes to one path take effect in the order of the calls. Raises BadVersionError, NotFoundError,
        HasChildrenError, StoreUnreachableError, OutcomeUnknownError, MetadataError.
        """
        # Sequential values do not wait: each has a path of its own.
        nodes = {step.write.path for step in steps if step.changes and step.mode not in _SEQUENTIAL}
        async with self._turns.hold(nodes), self._room:
            marker = self._markers.take()
            # Not returned after a cancellation: its write may still be under way.
            outcomes = await self._write(steps, marker)
            self._markers.give_back(marker)
            return outcomes

    async def _write(self, steps: Sequence[Step], marker: Marker) -> list[ReplyOutcome]:
        try:
            if marker.count == 0:
                await self._make(marker.path, b"")
            for _ in range(ATTEMPTS_MAX):
                value = marker.next_value()
                parts = parts_of(steps)
                outcomes = await self._once([part.operation for part in parts], SetData(marker.path, value))
                failed = failed_index(outcomes)
                if failed is None:
                    done = zip(parts, outcomes, strict=False)
                    return [outcome for part, outcome in done if not part.makes_parent]
                if failed == len(parts):
                    # Another process took this store for an abandoned one. Nothing takes effect without the
                    # marker.
                    await self._make(marker.path, b"")
                else:
                    await self._remedy(steps, parts[failed], outcomes[failed].error)
        except OutcomeUnknownError:
            raise
        except MetadataError:
            self._markers.give_back(marker)
            raise
        self._markers.give_back(marker)
        raise MetadataError(f"{steps[0].write.path}: others changed it at each of {ATTEMPTS_MAX} attempts")

    async def _remedy(self, steps: Sequence[Step], part: WritePart, error: int) -> None:
        step, node = part.step, part.step.write.path
        if not part.makes_parent or error not in (Code.NODE_EXISTS, Code.NO_NODE):
            found = await self.read(node) if wants_look(error) else None
            if learn(step, error, found) is Remedy.TRY_AGAIN:
                return
        await self._plan_parents(steps)

    async def _plan_parents(self, steps: Sequence[Step]) -> None:
        """Each missing node above what is made is made by the first step that needs it, for all. All at once:
        a multi names its first fault only."""
        makers: dict[str, Step] = {}
        planned = {step.write.path for step in steps if step.makes}
        for step in steps:
            step.parents = []
            for above in ancestors(step.write.path) if step.makes else ():
                if above not in planned:
                    makers.setdefault(above, step)
        stats = await gathered(self._stat(above) for above in makers)
        for (above, step), stat in zip(makers.items(), stats, strict=True):
            if stat is None:
                # The parent of sequential values keeps their counter: it must outlive its children.
                counter = step.mode in _SEQUENTIAL and above == paths.split(step.write.path)[0]
                step.parents.append(Create(above, b"" if counter else IMPLIED))

    async def _once(self, operations: list[Operation], mark: SetData) -> list[ReplyOutcome]:
        """Sends one multi until it is certainly applied; repeats it only when it certainly was not."""
        while True:
            try:
                reply = await self._link.call(Opcode.MULTI, pack_multi([*operations, mark]))
            except LostInFlightError:
                stat = await self._applied(mark)
                if stat is not None:
                    return [
                        *[await self._outcome(operation, stat) for operation in operations],
                        ReplyOutcome(0),
                    ]
                continue
            _check(reply, operations[0].path)
            return read_multi(reply.reader)

    async def _applied(self, mark: SetData) -> NodeStat | None:
        """The marker's stat when the multi with `mark` took effect; None when it never will."""
        try:
            await self.sync(mark.path)
            found = await self.read(mark.path)
        except StoreUnreachableError as error:
            raise OutcomeUnknownError(f"whether a write took effect is not known: {error}") from error
        if found is None:
            raise OutcomeUnknownError(f"{mark.path}: the marker of this store was deleted")
        return found.stat if found.data == mark.data else None

    async def _outcome(self, operation: Operation, marker: NodeStat) -> ReplyOutcome:
        try:
            if isinstance(operation, Create) and operation.mode in _SEQUENTIAL:
                return await self._sequential_outcome(operation.path, marker)
            found = await self.read(operation.path) if isinstance(operation, SetData) else None
        except StoreUnreachableError as error:
            raise OutcomeUnknownError(f"a write took effect, with unknown outcome: {error}") from error
        return outcome_by_marker(operation, marker, found)

    async def _sequential_outcome(self, prefix: str, marker: NodeStat) -> ReplyOutcome:
        parent, name = paths.split(f"{prefix}0")
        for child in await self.children(parent):
            if child.startswith(name[:-1]):
                stat = await self._stat(f"{parent}/{child}")
                if stat is not None and stat.czxid == marker.mzxid:
                    return ReplyOutcome(Code.OK, f"{parent}/{child}", stat)
        raise OutcomeUnknownError(f"{prefix}: the sequential value was made, and is gone already")

    # -- what may be done twice ----------------------------------------------------------------

    async def _make(self, node: str, data: bytes) -> None:
        """Makes a node unless it exists."""
        for _ in range(ATTEMPTS_MAX):
            reply = await self._again(Opcode.CREATE, pack_operation(Create(node, data)))
            if reply.error != Code.NO_NODE:
                break
            # Another process that deletes empty parents was faster.
            for above in ancestors(node):
                await self._again(Opcode.CREATE, pack_operation(Create(above, IMPLIED)))
        if reply.error != Code.NODE_EXISTS:
            _check(reply, node)

    async def remove(self, node: str) -> bool:
        """Deletes a node if it exists; False when it has children."""
        reply = await self._again(Opcode.DELETE, pack_operation(Remove(node)))
        if reply.error == Code.NOT_EMPTY:
            return False
        if reply.error != Code.NO_NODE:
            _check(reply, node)
        return True

    async def prune(self, node: str, root: str) -> None:
        """Deletes the parents of a deleted node that hold no value and have no other children."""
        above = [path for path in ancestors(node) if len(path) > len(root)]
        for parent in reversed(above):
            found = await self.read(parent)
            if found is None or not found.implied or found.stat.children_count:
                return
            reply = await self._again(Opcode.DELETE, pack_operation(Remove(parent, found.stat.version)))
            if reply.error != Code.OK:
                return

    async def _delete_folder(self, folder: str) -> None:
        for name in await self.children(folder):
            await self.remove(f"{folder}/{name}")
        await self.remove(folder)

    async def _again(self, opcode: Opcode, record: bytes) -> Reply:
        """The answer to a request that may be repeated."""
        while True:
            # Sent again: the caller knows that twice is as good as once.
            with contextlib.suppress(LostInFlightError):
                return await self._link.call(opcode, record)


def _check(reply: Reply, node: str) -> None:
    if reply.error != Code.OK:
        raise MetadataError(f"{node}: ZooKeeper refuses with error {reply.error}")
