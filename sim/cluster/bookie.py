"""A bookie of the simulated cluster: the product's rules and connections over a simulated disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.bookie.belonging import Belonging
from magnetar.bookie.network.collecting import collect, looking_again, missing_ledgers
from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.served import Output, ServedAnswer, Wait, Waited, Write
from magnetar.bookie.serving import BookieLedgers
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.registry import Cookie, RegisteredBookie
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError
from magnetar.runtime.tasks import soon
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX
from magnetar.wire.bookkeeper.requests import (
    AddRun,
    BatchRead,
    ForceLedger,
    ListEntries,
    Read,
    ReadLac,
    Request,
    WriteLac,
)
from magnetar.wire.bookkeeper.status import Status
from sim.cluster.loop import Process
from sim.cluster.store import SimStore, StoreNode
from sim.disk import Disk
from sim.rules import RulesInForce

PORT: Final = 3181
_COLLECT_S: Final = 0.7
_RETRY_S: Final = 0.2


class SimBookie:
    """One bookie over its lives."""

    packet_bytes_max = PACKET_BYTES_MAX

    def __init__(self, node: StoreNode, tree: BookKeeperTree, name: str, *, stalls: float) -> None:
        """`stalls`: how often its disk does."""
        self.name = name
        self.bookie_id = f"{name}:{PORT}"
        self.is_lost = False
        self.disk = Disk(node.world, self._durable, self._failed, stalls=stalls)
        self.process = Process(name)
        self.process.is_up = False
        self.turns: LoopShares
        self._node = node
        self._tree = tree
        self._wires = node.wires
        self._ledgers: BookieLedgers
        self._read_only = asyncio.Event()

    # -- lives --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Power on; knows what was on its disk."""
        if self.process.is_up or self.is_lost:
            return
        self._node.world.note(self.name, "starts")
        process = self.process = Process(self.name)
        self._ledgers = BookieLedgers(self.disk, self.disk.stored_ledgers(), rules=RulesInForce.serving)
        # Shares of one request, so that every read is put off.
        loop = self._wires.loop
        self.turns = LoopShares(soon, lambda: loop.time() * 1000, ShareSizes(per_read=1, per_turn=4))
        self._ledgers.read_only = self.disk.is_full
        process.ends.append(self.disk.crash)
        self._wires.listen(self.bookie_id, process, lambda: BookieConnection(self))
        self._wires.loop.start(process, self._main(SimStore(self._node, process)))

    def crash(self) -> None:
        """Power off."""
        self._wires.loop.kill(self.process)

    def lose(self) -> None:
        """Gone for ever, with its disk."""
        self.crash()
        self._node.world.note(self.name, "is lost for ever")
        self.is_lost = True
        self.disk.lose_everything()

    def set_full(self, *, full: bool) -> None:
        """The disk has no room, or has some again."""
        self.disk.is_full = full
        if self.process.is_up:
            self._node.world.note(self.name, "is full" if full else "has room")
            self._ledgers.read_only = full
            self._read_only.set()

    async def _main(self, store: SimStore) -> None:
        registry = TreeBookieRegistry(store, self._tree, claim_timeout_s=10.0)
        self._read_only = asyncio.Event()
        self._belonging = Belonging("")
        collecting = asyncio.get_running_loop().create_task(self._collect(registry))
        try:
            while True:
                self._read_only.clear()
                try:
                    await self._join(registry)
                except MetadataError:
                    await asyncio.sleep(_RETRY_S)
                else:
                    await self._read_only.wait()
        finally:
            collecting.cancel()

    async def _join(self, registry: TreeBookieRegistry) -> None:
        if await registry.cookie(self.bookie_id) is None:
            cookie = Cookie(self.bookie_id, ("/data",), ("/data",), await registry.instance_id())
            # An earlier attempt may have been done after all.
            with contextlib.suppress(BadVersionError):
                await registry.put_cookie(cookie, expected_version=MUST_NOT_EXIST)
        info = RegisteredBookie.at(self.bookie_id, self.name, PORT)
        await registry.register(info, read_only=self.disk.is_full)

    async def _collect(self, registry: TreeBookieRegistry) -> None:
        while True:
            await asyncio.sleep(_COLLECT_S)
            try:
                delete = looking_again(registry, registry.connection_id(), self._delete)
                missing = await missing_ledgers(set(self._ledgers.known()), registry)
                self._belonging, _ = await collect(
                    self._belonging, missing, delete, now_ms=0, elapsed_s=0, grace_s=1
                )
            except MetadataError:
                continue

    async def _delete(self, ledger_id: LedgerId) -> None:
        self._node.world.note(self.name, "deletes ledger", ledger_id)
        self._do(self._ledgers.forget(ledger_id))
        self.disk.delete(ledger_id)

    # -- serving ------------------------------------------------------------------------------------

    def opened(self, connection: BookieConnection) -> None:
        """See `Serving`."""

    def closed(self, connection: BookieConnection) -> None:
        """See `Serving`."""
        self._ledgers.gone(connection)

    def answering(self, connection: BookieConnection, size: int) -> None:
        """See `Serving`."""

    def taken(self, connection: BookieConnection) -> None:
        """See `Serving`."""

    def go_on(self, connection: BookieConnection) -> None:
        """See `Serving`."""

    def handle(self, connection: BookieConnection, requests: Sequence[Request]) -> None:
        """See `Serving`."""
        for request in requests:
            self._do(self._outputs(connection, request))

    def _outputs(self, connection: BookieConnection, request: Request) -> Sequence[Output]:
        ledgers = self._ledgers
        match request:
            case AddRun():
                return ledgers.add(connection, request)
            case Read():
                return ledgers.read(connection, request)
            case BatchRead():
                return ledgers.batch_read(connection, request)
            case WriteLac():
                return ledgers.write_lac(connection, request)
            case ReadLac():
                return ledgers.read_lac(connection, request)
            case ForceLedger():
                return ledgers.force(connection, request)
            case ListEntries():
                return ledgers.list_entries(connection, request, self.disk)
            case _:
                raise AssertionError(f"unexpected request {request}")

    def _durable(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            self._wires.loop.within(self.process, self._done, ticket)

    def _done(self, ticket: int) -> None:
        self._do(self._ledgers.durable(ticket))

    def _failed(self, tickets: Sequence[int], status: Status) -> None:
        for ticket in tickets:
            self._wires.loop.within(self.process, self._refuse, ticket, status)
        if status is Status.IO_ERROR:
            # It is unknown what of it is on the device: only a start looks. Answers may leave before.
            self._node.world.at(1, self.crash)

    def _refuse(self, ticket: int, status: Status) -> None:
        self._do(self._ledgers.failed(ticket, status))

    def _do(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, Write):
                self.disk.write(output)
            elif isinstance(output, ServedAnswer):
                assert isinstance(output.asker, BookieConnection)
                output.asker.answer(output.response)
            elif isinstance(output, Waited):
                self._do(self._ledgers.read(output.wait.asker, output.wait.request))
            else:
                assert output.timeout_ms is not None
                self._wires.loop.call_later(output.timeout_ms / 1_000, self._wait_over, output)

    def _wait_over(self, wait: Wait) -> None:
        self._do(self._ledgers.wait_over(wait))
