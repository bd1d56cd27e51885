"""Connections to bookies: opened when needed, kept, and avoided for a while after a failure.

A bookie that cannot be connected to, or disconnects before its first answer, is not tried again before a time
that doubles with every attempt. Requests to it fail at once meanwhile, so that its place in an ensemble is
filled without a wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from magnetar.base.errors import MetadataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.client.client_metrics import ClientMetrics
from magnetar.ledger.client.connection import AddSink, Answered, BookieChannel, key_of
from magnetar.ledger.client.health import BookieHealth
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.runtime.tasks import TaskGroup
from magnetar.wire.bookkeeper.requests import AddRun, BatchRead, ListEntries, Read, Request
from magnetar.wire.bookkeeper.responses import BatchReadDone, EntriesListed, ReadDone, Response
from magnetar.wire.bookkeeper.status import Status

_log = logging.getLogger("magnetar.ledger.client")

Resolve: TypeAlias = Callable[[str], Awaitable[tuple[str, int] | None]]
"""Host and port of a bookie; None when it is not registered."""

_OF_THE_BOOKIE: Final = frozenset((Status.IO_ERROR, Status.TOO_MANY_REQUESTS))
"""Outcomes that count against the bookie, not against the ledger or the request."""

RECOVERY: Final = -1
"""The channel of recoveries: version 2 could not tell their answers from a writer's."""

REPAIR: Final = -2
"""The channel of repairs, whose answers are ignored and must not be taken for other ones."""


@dataclass(frozen=True, slots=True)
class RecoveryRead:
    """That a read belongs to a recovery: bookies answer it before others."""

    fence_key: bytes | None = None
    """The master key with which the ledger is fenced first; None: it is only read."""


class _Channel:
    """One connection to one bookie, across reconnects."""

    def __init__(self, pool: BookiePool, bookie: str) -> None:
        self._pool = pool
        self._bookie = bookie
        self._connection: BookieChannel | None = None
        self._connecting = False
        self._waiting: list[Callable[[BookieChannel | None], None]] = []
        self._retry_at_s = float("-inf")
        self.made_s = float("-inf")
        """When the connection was made."""
        self._failures = 0

    def use(self, action: Callable[[BookieChannel | None], None]) -> None:
        """Runs `action` with the connection, soon; with None when there is none."""
        connection = self._connection
        if connection is not None and connection.is_usable:
            action(connection)
            return
        loop = asyncio.get_running_loop()
        if not self._connecting and (self._pool.is_closed or loop.time() < self._retry_at_s):
            # Not at once: the caller is in the middle of its own work.
            loop.call_soon(action, None)
            return
        self._waiting.append(action)
        if not self._connecting:
            self._connecting = True
            self._pool.tasks.spawn(self._connect())

    async def _connect(self) -> None:
        options = self._pool.options
        loop = asyncio.get_running_loop()
        connection: BookieChannel | None = None
        try:
            address = await self._pool.resolve(self._bookie)
            if address is None:
                raise OSError(f"bookie {self._bookie} is not registered")
            made = BookieChannel(
                self._bookie,
                is_v2=options.use_v2,
                timeout_s=options.answer_timeout_s,
                packet_bytes_max=options.packet_bytes_max,
                lost=self._lost,
                adds_took=self._adds_took,
            )
            async with asyncio.timeout(options.connect_timeout_s):
                await loop.create_connection(lambda: made, *address)
            try:
                await self._introduce(made, address[0])
            except BaseException:
                made.close()
                raise
            connection = made
            self.made_s = loop.time()
        except (OSError, TimeoutError, MetadataError) as error:
            self._back_off()
            _log.warning("%s: no connection: %s", self._bookie, str(error) or "no answer")
        finally:
            self._connection = connection
            self._connecting = False
            waiting, self._waiting = self._waiting, []
            for action in waiting:
                action(connection)

    async def _introduce(self, made: BookieChannel, host: str) -> None:
        """Starts TLS and authenticates. Raises OSError when the bookie refuses."""
        options = self._pool.options
        if options.tls is not None:
            await made.secure(options.tls, host)
        if options.user is not None:
            user = options.user
            await made.authenticate(user.name, user.password, secrets.token_urlsafe())
        if not made.is_usable:
            raise OSError("the bookie has gone")
        made.has_answered = False

    def _lost(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.has_answered:
            self._failures = 0
        elif not self._pool.is_closed:
            self._back_off()

    def _adds_took(self, seconds: float) -> None:
        pool = self._pool
        pool.metrics.add_seconds.add(seconds)
        pool.health.added(self._bookie, seconds, pool.now_s)

    def _back_off(self) -> None:
        options, now_s = self._pool.options, self._pool.now_s
        self._retry_at_s = now_s + min(options.backoff_first_s * 2**self._failures, options.backoff_max_s)
        self._failures = min(self._failures + 1, 16)
        self._pool.health.failed(self._bookie, now_s)

    def current(self) -> BookieChannel | None:
        """The connection, if there is one."""
        return self._connection

    def close(self) -> None:
        """Drops the connection."""
        if self._connection is not None:
            self._connection.close()


class _Unheard:
    """The answers to repairs are ignored."""

    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        """Called by the connection."""


class BookiePool:
    """The bookies that one client uses."""

    def __init__(self, resolve: Resolve, options: LedgerClientOptions) -> None:
        self.resolve: Final = resolve
        self.options: Final = options
        self.health: Final = BookieHealth(options.quarantine)
        self.metrics: Final = ClientMetrics()
        self.tasks: Final = TaskGroup("ledger client")
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._channels: dict[tuple[str, int], _Channel] = {}
        self._request_ids = itertools.count(1)

    def _channel(self, bookie: str, ledger_id: LedgerId, *, recovery: bool) -> _Channel:
        return self._channel_at(bookie, RECOVERY if recovery else ledger_id % self.options.channels)

    def _channel_at(self, bookie: str, slot: int) -> _Channel:
        channel = self._channels.get((bookie, slot))
        if channel is None:
            channel = self._channels[bookie, slot] = _Channel(self, bookie)
        return channel

    @property
    def now_s(self) -> float:
        """The loop's time, which `health` uses."""
        return self._loop.time()

    @property
    def connections(self) -> int:
        """Open connections."""
        return sum(channel.current() is not None for channel in self._channels.values())

    async def came_back(self, bookie: str) -> bool:
        """Whether a bookie that failed before is reachable and may be asked to take entries again."""
        channel = self._channel(bookie, LedgerId(0), recovery=False)
        reached: asyncio.Future[bool] = self._loop.create_future()

        def told(connection: BookieChannel | None) -> None:
            if not reached.done():
                reached.set_result(connection is not None)

        channel.use(told)
        return await reached and self.health.may_take(bookie, channel.made_s, self.now_s)

    def send_adds(self, bookie: str, run: AddRun, sink: AddSink) -> None:
        """Sends adds of one ledger to one bookie; the sink is notified of each answer."""

        def send(connection: BookieChannel | None) -> None:
            if connection is None:
                sink.added((), Status.IO_ERROR)
            else:
                connection.send_adds(run, sink)

        self._channel(bookie, run.ledger_id, recovery=run.recovery).use(send)

    def repair(self, bookie: str, run: AddRun) -> None:
        """Adds copies to a bookie that should have had them; the outcome is not reported."""

        def send(connection: BookieChannel | None) -> None:
            if connection is not None:
                connection.send_adds(run, _Unheard())

        self._channel_at(bookie, REPAIR).use(send)

    def forget(self, bookie: str, ledger_id: LedgerId, sink: AddSink, *, recovery: bool) -> None:
        """The sink is not notified any more."""
        connection = self._channel(bookie, ledger_id, recovery=recovery).current()
        if connection is not None:
            connection.forget(ledger_id, sink)

    def read(
        self,
        bookie: str,
        ledger_id: LedgerId,
        entry_id: int,
        answered: Callable[[Status, bytes | None], None],
        *,
        recovery: RecoveryRead | None = None,
        silence: Status = Status.IO_ERROR,
        lac_seen: Callable[[int], None] | None = None,
    ) -> None:
        """Reads one entry, or the last one (-1). No answer counts as `silence`.

        `lac_seen` is called with the last add confirmed that the bookie knows, which version 3 includes.
        """

        fence_key = None if recovery is None else recovery.fence_key

        def request(connection: BookieChannel) -> Read:
            return Read(
                ledger_id,
                entry_id,
                txn_id=None if self.options.use_v2 else connection.take_txn_id(),
                fence=fence_key is not None,
                master_key=fence_key,
                high_priority=recovery is not None,
            )

        def done(response: Response | None) -> None:
            if isinstance(response, ReadDone):
                if lac_seen is not None and response.lac_max is not None:
                    lac_seen(response.lac_max)
                answered(response.status, response.entry)
            else:
                answered(silence, None)

        self.ask(bookie, ledger_id, request, done, recovery=recovery is not None)

    def batch_read(
        self,
        bookie: str,
        ledger_id: LedgerId,
        first_entry: int,
        count_max: int,
        bytes_max: int,
        answered: Callable[[Status, tuple[bytes, ...]], None],
    ) -> None:
        """Reads consecutive entries (version 2). No answer counts as TOO_MANY_REQUESTS."""

        def request(_: BookieChannel) -> BatchRead:
            return BatchRead(ledger_id, first_entry, next(self._request_ids), count_max, bytes_max)

        def done(response: Response | None) -> None:
            if isinstance(response, BatchReadDone):
                answered(response.status, response.entries)
            else:
                answered(Status.TOO_MANY_REQUESTS, ())

        self.ask(bookie, ledger_id, request, done)

    def list_entries(
        self, bookie: str, ledger_id: LedgerId, answered: Callable[[Status, bytes | None], None]
    ) -> None:
        """Lists the entries of a ledger (version 3; `wire.bookkeeper.availability`). No answer counts as
        IO_ERROR: some bookies do not know the request."""
        assert not self.options.use_v2

        def request(connection: BookieChannel) -> ListEntries:
            return ListEntries(ledger_id, connection.take_txn_id())

        def done(response: Response | None) -> None:
            if isinstance(response, EntriesListed):
                answered(response.status, response.entries)
            else:
                answered(Status.IO_ERROR, None)

        self.ask(bookie, ledger_id, request, done)

    def ask(
        self,
        bookie: str,
        ledger_id: LedgerId,
        make: Callable[[BookieChannel], Request],
        done: Answered,
        *,
        recovery: bool = False,
        wait_s: float = 0.0,
    ) -> None:
        """Sends any request but adds; `done` gets None when no answer comes. `wait_s`: seconds that the
        bookie may wait before it answers, besides the time of any answer."""
        begun_s = self.now_s

        def measured(response: Response | None) -> None:
            if response is None or getattr(response, "status", None) in _OF_THE_BOOKIE:
                self.metrics.reads_failed += 1
                self.health.failed(bookie, self.now_s)
            else:
                self.metrics.reads += 1
                if not wait_s:
                    took_s = self.now_s - begun_s
                    self.metrics.read_seconds.add(took_s)
                    self.health.answered(bookie, took_s, self.now_s)
            done(response)

        def send(connection: BookieChannel | None) -> None:
            if connection is None:
                done(None)
            else:
                request = make(connection)
                key = key_of(request, is_v2=self.options.use_v2)
                connection.ask(key, request, measured, wait_s=wait_s)

        self._channel(bookie, ledger_id, recovery=recovery).use(send)

    async def close(self) -> None:
        """Closes all connections; callers that wait for an answer get None."""
        self.is_closed = True
        await self.tasks.close()
        for channel in list(self._channels.values()):
            channel.close()
