"""The bookie on the network: drives `BookieLedgers` with its clients' requests and its disk's results.

Requests of one client are handled in their order. Bytes that a query needs from the device are read in a
thread, and the query is repeated. Each client has a share of a turn of the loop, in requests and in
milliseconds; the rest is put off. An index that is not in memory delays later requests for its ledger; when
many of a client wait for indexes, all its later requests. A read that has waited for a fence or for more
entries is asked again, so its answer is within the same bounds as any other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.errors import DiskFullError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.bookie.network.access import NO_AUTHENTICATION, Access, Door
from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.entries import NetworkEntries, NotAtHandError
from magnetar.bookie.network.handshakes import Handshakes
from magnetar.bookie.network.holding import ClientHolds
from magnetar.bookie.network.loading import Asked, IndexLoads
from magnetar.bookie.network.outflow import OF_ALL_BYTES
from magnetar.bookie.network.outsiders import Outsiders
from magnetar.bookie.network.questions import outputs_of
from magnetar.bookie.network.read_budget import ReadBudget
from magnetar.bookie.network.read_waits import ReadWaits
from magnetar.bookie.network.refusals import LedgerRequest, refused
from magnetar.bookie.network.spread import SpreadEntries
from magnetar.bookie.network.traffic import Traffic
from magnetar.bookie.segment_store import SegmentStore
from magnetar.bookie.served import Output, ServedAnswer, ServedLedger, Wait, Waited, Write
from magnetar.bookie.serving import BookieLedgers
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import TaskGroup, soon
from magnetar.wire.bookkeeper.bookie import REQUEST_WORK
from magnetar.wire.bookkeeper.packets import PACKET_BYTES_MAX
from magnetar.wire.bookkeeper.requests import (
    Auth,
    BookieInfo,
    Read,
    Request,
    StartTls,
    Unserved,
)
from magnetar.wire.bookkeeper.responses import AuthDone, BookieInfoDone, Refused, TlsStarts
from magnetar.wire.bookkeeper.status import Status

_SHARES: Final = ShareSizes(per_read=64 * REQUEST_WORK, per_turn=128 * REQUEST_WORK)
"""Requests of a read, and of a turn of the loop; adds count for less, by their bytes."""

_log = logging.getLogger("magnetar.bookie.network")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Bounds of a bookie's server."""

    packet_bytes_max: int = PACKET_BYTES_MAX
    output_bytes_max: int = OF_ALL_BYTES
    """Bytes of answers that clients have not taken, from which on reads wait."""
    pending_bytes_max: int = 64 << 20
    """Bytes that wait for a sync or for the index of their ledger, from which on no client is read."""
    idle_s: float = 300.0
    """Seconds without a write after which the memory of a ledger is freed."""
    tls: ssl.SSLContext | None = None
    """Context for START_TLS; None: TLS is not supported."""
    access: Access = field(default_factory=Access)
    connections_max: int = 0
    """Connections at a time; 0: no limit."""
    outside_s: float = 10.0
    """Seconds after which a client that has not authenticated is disconnected."""


class BookieServer:
    """Serves the ledgers of one store. Use `open`; then `listen`."""

    def __init__(self, options: ServerOptions) -> None:
        self.packet_bytes_max = options.packet_bytes_max
        self.access = options.access
        """What it demands of its clients."""
        self.entries: NetworkEntries | SpreadEntries
        self.ledgers: BookieLedgers
        self.turns = LoopShares(soon, SystemClock().monotonic_ms, _SHARES)
        """The shares of a turn of the loop that clients have."""
        self.traffic: Traffic | None = None
        """Counts requests for `/metrics`; None: there is no `/metrics`."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskGroup("bookie")
        self._server: asyncio.Server | None = None
        self._connections: set[BookieConnection] = set()
        self._outsiders = Outsiders()
        self._handshakes = Handshakes()
        self.holding = ClientHolds(self._connections)
        self._all_held = False
        self._brought: tuple[LedgerId, int] | None = None
        self.budget = ReadBudget(self._options.output_bytes_max, self._has_place)
        """For the answers to reads."""
        self._loads: IndexLoads
        self._waits = ReadWaits(self.turns, self._wait_over, self._waited)

    @classmethod
    async def open(cls, *stores: SegmentStore, options: ServerOptions | None = None) -> BookieServer:
        """A server over the stores, which it closes. Raises StorageError."""
        server = cls(options or ServerOptions())
        known: list[ServedLedger]
        if len(stores) == 1:
            server.entries, known = await NetworkEntries.open(stores[0], server._durable, server._failed)
        else:
            server.entries, known = await SpreadEntries.open(stores, server._durable, server._failed)
        server.ledgers = BookieLedgers(
            server.entries,
            known,
            (ledger_id for store in stores for ledger_id in store.segments.deleted),
            knows_all=server.entries.knows_all,
        )
        server._loads = IndexLoads(server._tasks, server.budget, server.entries, server._loaded)
        server._tasks.every(server._options.idle_s / 2, server._release_idle)
        return server

    async def listen(self, host: str, port: int) -> int:
        """Accepts clients from now on; returns the port (the chosen one for 0). Raises OSError."""
        self._server = await self._loop.create_server(lambda: BookieConnection(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """Connected clients."""
        return len(self._connections)

    async def close(self) -> None:
        """Disconnects all clients and closes the store."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._tasks.close()
        await self.entries.close()

    async def _release_idle(self) -> None:
        self.entries.release_idle(self._options.idle_s)

    # -- connections ----------------------------------------------------------------------------

    def opened(self, connection: BookieConnection) -> None:
        """See `Serving`."""
        options, there = self._options, len(self._connections)
        self._connections.add(connection)
        if 0 < options.connections_max <= there and not self._outsiders.drop_oldest():
            _log.warning(
                "%s: connection refused: the limit of %d connections is reached", connection.peer, there
            )
            connection.close()
            return
        if not options.access.is_open:
            connection.door = Door(options.access, secrets.token_urlsafe)
            self._outsiders.add(connection, options.outside_s)
        self.holding.opened(connection)

    def closed(self, connection: BookieConnection) -> None:
        """See `Serving`."""
        self._connections.discard(connection)
        self._outsiders.remove(connection)
        self.budget.gone(connection)
        self._waits.gone(self.ledgers.gone(connection))
        # Others may wait for its fences.
        self.budget.look_soon()

    def _let_in(self, connection: BookieConnection) -> None:
        connection.door = None
        self._outsiders.remove(connection)

    def handle(self, connection: BookieConnection, requests: Sequence[Request]) -> None:
        """See `Serving`."""
        until_ms = self.turns.piece_until_ms
        for at, request in enumerate(requests):
            if connection.door is None or isinstance(request, StartTls):
                late = at > 0 and self.turns.now_ms() >= until_ms
                if late or not self.budget.takes(connection, request):
                    self.budget.put_off(connection, requests[at:])
                    break
                self._handle(connection, request)
            elif not self._admit(connection, connection.door, request):
                return
        if not self._all_held and self._pending_bytes > self._options.pending_bytes_max:
            self._all_held = True
            self.holding.begin()

    def go_on(self, connection: BookieConnection) -> None:
        """See `Serving`."""
        self.budget.go_on(connection)

    def _has_place(self, connection: BookieConnection, request: Request) -> bool:
        """Whether a request may wait for a fence, if it asks for one."""
        return not (isinstance(request, Read) and request.fence) or self.ledgers.fencing.has_place(connection)

    def _admit(self, connection: BookieConnection, door: Door, request: Request) -> bool:
        """Answers a client that has not authenticated; returns whether the connection stays open."""
        answer = door.answer(request)
        if answer is not None:
            connection.answer(answer)
        if door.is_open:
            self._let_in(connection)
        if answer is None or door.is_shut:
            _log.warning("%s: connection closed: not authenticated", connection.peer)
            connection.end()
            return False
        return True

    def answering(self, connection: BookieConnection, size: int) -> None:
        """See `Serving`."""
        self.budget.answering(connection, size)

    def taken(self, connection: BookieConnection) -> None:
        """See `Serving`."""
        self.budget.taken(connection)

    @property
    def _pending_bytes(self) -> int:
        return self.entries.pending_bytes + self._loads.waiting_bytes

    def _go_on(self) -> None:
        """Some of what waited has ended."""
        if self._all_held and self._pending_bytes <= self._options.pending_bytes_max // 2:
            self._all_held = False
            self.holding.end()
        self.budget.look_soon()

    def _handle(self, connection: BookieConnection, request: Request) -> None:
        if not isinstance(request, LedgerRequest):
            self._handle_other(connection, request)
            return
        if request.ledger_id < 0:
            # One of the bookie's own, whose records hold the keys of all other ledgers.
            self._do([ServedAnswer(connection, refused(request, Status.BAD_REQUEST))])
        elif not self._loads.hold_back(request.ledger_id, connection, request):
            self._ask(connection, request)

    def _loaded(self, asked: Asked) -> None:
        """The index for these requests is there."""
        late: dict[BookieConnection, list[Request]] = {}
        for connection, request in asked:
            if connection.is_lost:
                continue
            if connection not in late and not self.turns.spent and self.budget.may_begin(connection, request):
                self.turns.handled(REQUEST_WORK)
                self._ask(connection, request)
            else:
                late.setdefault(connection, []).append(request)
        for connection, requests in late.items():
            self.budget.put_off(connection, requests, in_front=True)
        self._go_on()

    def _ask(self, connection: BookieConnection, request: Request) -> None:
        try:
            self._do(outputs_of(self.ledgers, self.entries, connection, request))
        except NotAtHandError as missing:
            if missing.place != self._brought:
                self.budget.brings(connection)
                self._tasks.spawn(self._ask_again(connection, request, missing))
                return
            # It is damaged, or its file system never tells what is in memory (tmpfs, NFS).
            self.entries.waits = True
            try:
                self._do(outputs_of(self.ledgers, self.entries, connection, request))
            finally:
                self.entries.waits = False

    def _ask_late(self, connection: BookieConnection, request: Request) -> None:
        """Asks when the budget allows the answer, if the client is still there."""
        if connection.is_lost:
            return
        if not self.turns.spent and self.budget.may_begin(connection, request):
            self.turns.handled(REQUEST_WORK)
            self._ask(connection, request)
        else:
            self.budget.put_off(connection, [request])

    async def _ask_again(
        self, connection: BookieConnection, request: Request, missing: NotAtHandError
    ) -> None:
        try:
            await self.entries.bring(missing)
        except StorageError as error:
            # The repeated query meets the damage again and answers it.
            _log.warning("%s", error)
        finally:
            self.budget.brought(connection)
        self._brought = missing.place
        self._ask_late(connection, request)

    def _handle_other(self, connection: BookieConnection, request: Request) -> None:
        if isinstance(request, Auth):
            connection.answer(AuthDone(NO_AUTHENTICATION, b"", txn_id=request.txn_id))
        elif isinstance(request, BookieInfo):
            capacity, free = self.entries.disk_bytes()
            told = capacity if request.capacity else None, free if request.free else None
            connection.answer(BookieInfoDone(Status.OK, request.txn_id, *told))
        elif isinstance(request, StartTls):
            self._start_tls(connection, request)
        else:
            assert isinstance(request, Unserved)
            status = Status.BAD_VERSION if request.wrong_version else Status.BAD_REQUEST
            connection.answer(Refused(request.operation, status, request.txn_id))

    def _start_tls(self, connection: BookieConnection, request: StartTls) -> None:
        context = self._options.tls
        if context is None or connection.is_secure:
            connection.answer(TlsStarts(Status.BAD_REQUEST, request.txn_id))
            return
        if not self._handshakes.begin(connection, self._loop.time()):
            return
        connection.answer(TlsStarts(Status.OK, request.txn_id))
        connection.begin_tls()
        self._tasks.spawn(self._secure(connection, context))

    async def _secure(self, connection: BookieConnection, context: ssl.SSLContext) -> None:
        try:
            if not await connection.secure(context):
                return
        finally:
            self._handshakes.end(connection)
        door = connection.door
        if door is not None:
            if (reason := door.secured(connection.certificate)) is not None:
                # The next request is answered with the refusal, then the connection ends: a client that is
                # cut off without an answer counts the bookie as failed.
                _log.warning("%s: authentication failed: %s", connection.peer, reason)
            elif door.is_open:
                self._let_in(connection)
        connection.tls_done()

    # -- what the rules ask for -----------------------------------------------------------------

    def _do(self, outputs: Sequence[Output]) -> None:
        traffic = self.traffic
        for output in outputs:
            if isinstance(output, ServedAnswer):
                assert isinstance(output.asker, BookieConnection)
                if traffic is not None:
                    traffic.answered(output.response)
                output.asker.answer(output.response)
            elif isinstance(output, Write):
                if traffic is not None:
                    traffic.wrote(output)
                self.entries.write(output)
            elif isinstance(output, Waited):
                self._waits.end(output.wait)
            else:
                self._waits.begin(output)

    def _wait_over(self, wait: Wait) -> None:
        self._do(self.ledgers.wait_over(wait))

    def _waited(self, wait: Wait) -> None:
        assert isinstance(wait.asker, BookieConnection)
        self._ask_late(wait.asker, wait.request)

    def _durable(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            self._do(self.ledgers.durable(ticket))
        self._go_on()

    def _failed(self, tickets: Sequence[int], error: StorageError) -> None:
        status = Status.READ_ONLY if isinstance(error, DiskFullError) else Status.IO_ERROR
        for ticket in tickets:
            self._do(self.ledgers.failed(ticket, status))
        self._go_on()

    # -- deleting -------------------------------------------------------------------------------

    async def delete(self, ledger_id: LedgerId) -> None:
        """Deletes a ledger that no longer exists. Raises StorageError."""
        self._do(self.ledgers.forget(ledger_id))
        await self.entries.delete(ledger_id)

    def known_ledgers(self) -> set[LedgerId]:
        """All ledgers with entries or a state on this bookie."""
        return self.entries.held_ledgers() | set(self.ledgers.known())
