"""What the ledgers of one client share: connections, the registries, who is alive, where ensembles go."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from magnetar.base.errors import MetadataError
from magnetar.ledger.client.options import ClientOptions
from magnetar.ledger.client.placement import RackPlacement
from magnetar.ledger.client.pool import BookiePool
from magnetar.ledger.quorum.effects import ChooseBookies
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.registry import LedgerRegistry
from magnetar.metadata.bookkeeper.registry import BookieInfo, LiveBookies

_log = logging.getLogger("magnetar.ledger.client")


class Bookies(Protocol):
    """The part of `BookieRegistry` that a ledger client needs."""

    async def bookies(self) -> LiveBookies:
        """Who is registered now."""

    async def info(self, bookie_id: str) -> BookieInfo | None:
        """What a registered bookie tells of itself."""


def _shuffled(names: Sequence[str]) -> list[str]:
    return random.sample(names, len(names))


class Cluster:
    """Bookies and metadata as one client sees them."""

    def __init__(
        self,
        ledgers: LedgerRegistry,
        bookies: Bookies,
        options: ClientOptions | None = None,
        *,
        racks: Callable[[str], str] | None = None,
        shuffled: Callable[[Sequence[str]], list[str]] = _shuffled,
    ) -> None:
        """`racks`: the rack of a bookie; None: they are all in one."""
        self.ledgers: Final = ledgers
        self.options: Final = options or ClientOptions()
        self.pool: Final = BookiePool(self._address, self.options)
        self._bookies = bookies
        self._known = LiveBookies(frozenset(), frozenset())
        self._placement = (
            RackPlacement(shuffled=shuffled) if racks is None else RackPlacement(racks, shuffled=shuffled)
        )

    async def _address(self, bookie: str) -> tuple[str, int] | None:
        info = await self._bookies.info(bookie)
        # One that is not registered may be there all the same; its id often is its address.
        return (info or BookieInfo(bookie)).address()

    async def _writable(self) -> frozenset[str]:
        try:
            self._known = await self._bookies.bookies()
        except MetadataError as error:
            _log.warning("who is alive is not known, what was known is used: %s", error)
        return self._known.writable

    async def new_ensemble(self, layout: QuorumLayout) -> tuple[str, ...]:
        """Bookies of a new ledger. Raises NotEnoughBookiesError."""
        avoid = self.pool.health.quarantined(self.pool.now_s)
        return self._placement.new_ensemble(layout, await self._writable(), avoid)

    async def replacements(
        self, layout: QuorumLayout, ensemble: Sequence[str], choose: ChooseBookies
    ) -> dict[int, str]:
        """Answers ChooseBookies."""
        avoid = self.pool.health.quarantined(self.pool.now_s)
        writable = await self._writable()
        return self._placement.replacements(layout, ensemble, choose.failed, writable, choose.exclude, avoid)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in the background as long as the client lives."""
        self.pool.tasks.spawn(work)

    async def close(self) -> None:
        """Drops all connections."""
        await self.pool.close()
