"""Tells bookies the last add confirmed of a ledger when no entry does.

An entry carries what was confirmed when it was sent, so readers of an open ledger would never see the last
entries of a writer that pauses. Some time after entries were confirmed, bookies get a message of its own,
unless an entry has told them meanwhile.

Source: BookKeeper's explicit last-add-confirmed.
"""

from __future__ import annotations

import asyncio

from magnetar.ledger.client import version3
from magnetar.ledger.client.pool import BookiePool
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.runtime.tasks import call_later
from magnetar.wire.bookkeeper.digests import Digester
from magnetar.wire.bookkeeper.status import Status


class ExplicitLac:
    """Sends the explicit last add confirmed of one writer."""

    def __init__(
        self, pool: BookiePool, core: QuorumWriter, digester: Digester, master_key: bytes, *, after_s: float
    ) -> None:
        """`after_s`: seconds to wait for an entry that carries it, > 0."""
        self._pool = pool
        self._core = core
        self._digester = digester
        self._master_key = master_key
        self._after_s = after_s
        self._told = -1
        self._timer: asyncio.TimerHandle | None = None

    def advanced(self) -> None:
        """More entries are confirmed."""
        if self._timer is None:
            self._timer = call_later(self._after_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        core = self._core
        last = core.last_confirmed
        if core.is_over or last <= max(self._told, core.last_told):
            return
        self._told = last
        blob = self._digester.seal_lac(last)
        for bookie in core.ensemble:
            version3.write_lac(
                self._pool,
                bookie,
                core.ledger_id,
                last,
                master_key=self._master_key,
                blob=blob,
                answered=_unheard,
            )

    def close(self) -> None:
        """Sends nothing more."""
        if self._timer is not None:
            self._timer.cancel()


def _unheard(status: Status) -> None:
    """A bookie that was not told only delays its readers."""
