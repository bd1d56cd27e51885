"""Requests that wait while the index of their ledger is loaded.

They are handled in their order once it is. `ReadBudget` bounds how many of a client wait; the bytes of all
count as bytes that wait for a sync do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.entries import NetworkEntries
from magnetar.bookie.network.read_budget import ReadBudget
from magnetar.bookie.network.spread import SpreadEntries
from magnetar.runtime.tasks import TaskGroup
from magnetar.wire.bookkeeper.requests import AddRun, Request, WriteLac

_log = logging.getLogger("magnetar.bookie.network")

Asked: TypeAlias = Sequence[tuple[BookieConnection, Request]]
"""Requests and whose they are, in their order."""


class IndexLoads:
    """The ledgers of one bookie whose indexes are being loaded."""

    def __init__(
        self,
        tasks: TaskGroup,
        budget: ReadBudget,
        entries: NetworkEntries | SpreadEntries,
        loaded: Callable[[Asked], None],
    ) -> None:
        """`loaded` is called with the requests whose index is there now; with none when it cannot be read."""
        self._tasks: Final = tasks
        self._budget: Final = budget
        self._entries: Final = entries
        self._loaded: Final = loaded
        self._waiting: dict[LedgerId, list[tuple[BookieConnection, Request]]] = {}
        self.waiting_bytes = 0
        """Bytes of the entries in requests that wait."""

    def hold_back(self, ledger_id: LedgerId, connection: BookieConnection, request: Request) -> bool:
        """Makes a request wait for its index; returns whether it does. Otherwise it is to be handled now."""
        waiting = self._waiting.get(ledger_id)
        if waiting is None:
            if self._entries.is_ready(ledger_id):
                return False
            waiting = self._waiting[ledger_id] = []
            self._tasks.spawn(self._load(ledger_id))
        waiting.append((connection, request))
        self._budget.loads(connection)
        self.waiting_bytes += _size(request)
        return True

    async def _load(self, ledger_id: LedgerId) -> None:
        failed = False
        try:
            await self._entries.make_ready(ledger_id)
        except StorageError as error:
            _log.error("the index of ledger %d cannot be read: %s", ledger_id, error)
            failed = True
        waiting = self._waiting.pop(ledger_id)
        for connection, request in waiting:
            self._budget.loaded(connection)
            self.waiting_bytes -= _size(request)
            if failed:
                # The clients use other bookies; this one must not give an uncertain answer.
                connection.close()
        self._loaded(() if failed else waiting)


def _size(request: Request) -> int:
    """Bytes of a request besides some hundred."""
    if isinstance(request, AddRun):
        return request.size_bytes
    return len(request.blob) if isinstance(request, WriteLac) else 0
