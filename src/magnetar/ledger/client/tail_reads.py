"""How far an open ledger is confirmed: from enough of its bookies, from the first that knows more, or from
the first that learns of more while all are asked to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.ledger.client import version3
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.errors import LedgerUnreadableError
from magnetar.ledger.ledger_metadata import LedgerMetadata
from magnetar.ledger.quorum.last_confirmed import LastConfirmed
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.tailing import TailPoll
from magnetar.wire.bookkeeper.digests import Digester, LedgerEntry
from magnetar.wire.bookkeeper.requests import LAST_ENTRY
from magnetar.wire.bookkeeper.status import Status


class TailReads:
    """Queries about the end of one ledger. `metadata` is called for each, because ensembles change."""

    def __init__(
        self,
        cluster: Cluster,
        ledger_id: LedgerId,
        digester: Digester,
        metadata: Callable[[], LedgerMetadata],
    ) -> None:
        self.ledger_id: Final = ledger_id
        self._cluster = cluster
        self._digester = digester
        self._metadata = metadata

    def _end(self) -> tuple[int, tuple[str, ...], QuorumLayout]:
        """The last ensemble: its first entry, its members, their layout."""
        metadata = self._metadata()
        first, members = metadata.ensembles[-1]
        return first, members, QuorumLayout(len(members), metadata.write_quorum, metadata.ack_quorum)

    async def last_confirmed(self) -> int:
        """The last entry that is confirmed, as far as enough bookies exclude a later one.

        In version 3 the explicit last add confirmed counts as well. Raises LedgerUnreadableError.
        """
        first, members, layout = self._end()
        core = LastConfirmed(layout, self._digester, first - 1)
        await self._ask(core, members, lambda: core.is_over)
        if not core.is_known:
            raise LedgerUnreadableError(
                f"too few bookies of ledger {self.ledger_id} say how far it is confirmed"
            )
        return core.last_confirmed

    async def later_than(self, known: int) -> int:
        """The answer of the first bookie that knows of more than `known`; `known` when none does."""
        first, members, layout = self._end()
        core = LastConfirmed(layout, self._digester, max(known, first - 1))
        answers = 0

        def is_over() -> bool:
            nonlocal answers
            answers += 1
            return core.last_confirmed > known or answers == len(members)

        if core.last_confirmed == known:
            await self._ask(core, members, is_over)
        return core.last_confirmed

    async def _ask(self, core: LastConfirmed, members: tuple[str, ...], is_over: Callable[[], bool]) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pool = self._cluster.pool
        for index, bookie in enumerate(members):

            def answered(
                status: Status, entry: bytes | None, blob: bytes | None = None, index: int = index
            ) -> None:
                if not over.done():
                    core.read(index, status, entry, blob)
                    if is_over():
                        over.set_result(None)

            if pool.options.use_v2:
                pool.read(bookie, self.ledger_id, LAST_ENTRY, answered)
            else:
                version3.read_lac(pool, bookie, self.ledger_id, answered)
        await over

    async def wait(self, previous: int, wait_s: float) -> tuple[int, LedgerEntry | None]:
        """Waits until more than `previous` is confirmed, at most `wait_s` seconds (version 3).

        Returns the last confirmed entry, and the entry after `previous` if it came with the answer.
        """
        _, members, layout = self._end()
        core = TailPoll(layout, self._digester, previous)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for index, bookie in enumerate(members):

            def answered(
                status: Status, lac_max: int | None, entry: bytes | None, index: int = index
            ) -> None:
                if not over.done():
                    core.answered(index, status, lac_max, entry)
                    if core.is_over:
                        over.set_result(None)

            version3.wait_for_more(self._cluster.pool, bookie, self.ledger_id, previous, wait_s, answered)
        await over
        return core.last_confirmed, core.entry
