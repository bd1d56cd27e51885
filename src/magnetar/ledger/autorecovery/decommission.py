"""Removes a bookie from the cluster for good: its ledgers get other bookies, then its cookie is deleted.

The workers of auto-recovery copy; this module marks the ledgers for them, and counts those that are left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Final

from magnetar.base.errors import LedgerError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.autorecovery.fragments import held_by
from magnetar.ledger.registry import LedgerRegistry
from magnetar.metadata.bookkeeper.registry import BookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.store import NotFoundError
from magnetar.runtime.tasks import pause

_LOOKS_SHARE: Final = 0.5
"""Counting takes at most this share of the time, however many ledgers are left."""


class DecommissionError(LedgerError):
    """The bookie cannot be removed now; the message says why."""


class Decommission:
    """The decommission of one bookie."""

    def __init__(
        self,
        ledgers: LedgerRegistry,
        bookies: BookieRegistry,
        marks: UnderreplicatedLedgers,
        bookie_id: str,
        *,
        look_s: float = 2.0,
    ) -> None:
        """`look_s`: pause between two counts."""
        self._ledgers = ledgers
        self._bookies = bookies
        self._marks = marks
        self._bookie_id = bookie_id
        self._look_s = look_s

    async def run(self, told: Callable[[int], None]) -> None:
        """Returns when no ledger names the bookie and its cookie is deleted. `told` is called with the number
        of ledgers left.

        May be cancelled and run again at any time. Raises DecommissionError for a bookie that is registered
        or unknown, MetadataError.
        """
        loop = asyncio.get_running_loop()
        await self._marks.prepare()
        await self._check_down()
        cookie = await self._bookies.cookie(self._bookie_id)
        left = await self._held(self._ledgers.ledger_ids())
        if cookie is None and not left:
            raise DecommissionError(f"no bookie {self._bookie_id} is known here, and no ledger names it")
        while left:
            told(len(left))
            for ledger_id in left:
                if await self._marks.get(ledger_id) is None:
                    await self._marks.mark(ledger_id, frozenset({self._bookie_id}))
            await pause(self._look_s)
            await self._check_down()
            begun_s = loop.time()
            # None of these are left, but a writer may have chosen the bookie since.
            left = await self._held(_each(left)) or await self._held(self._ledgers.ledger_ids())
            await pause((loop.time() - begun_s) * (1 / _LOOKS_SHARE - 1))
        told(0)
        await self._check_down()
        found = await self._bookies.cookie(self._bookie_id)
        if found is not None:
            with contextlib.suppress(NotFoundError):  # another process deleted it
                await self._bookies.delete_cookie(self._bookie_id, expected_version=found[1])

    async def _check_down(self) -> None:
        if self._bookie_id in (await self._bookies.bookies()).all():
            raise DecommissionError(
                f"bookie {self._bookie_id} is up: stop it, and wait until its session ends"
            )

    async def _held(self, ledger_ids: AsyncIterable[LedgerId]) -> list[LedgerId]:
        """The ledgers that name the bookie. Raises MetadataError, LedgerMetadataError: an unreadable ledger
        may name it."""
        names: list[LedgerId] = []
        async for ledger_id in ledger_ids:
            with contextlib.suppress(NoSuchLedgerError):  # deleted since the listing
                stored = await self._ledgers.read(ledger_id)
                if held_by(stored.metadata, {self._bookie_id}):
                    names.append(ledger_id)
        return names


async def _each(ledger_ids: Iterable[LedgerId]) -> AsyncIterator[LedgerId]:
    for ledger_id in ledger_ids:
        yield ledger_id
