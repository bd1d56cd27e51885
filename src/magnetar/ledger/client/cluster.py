"""Shared by the ledgers of one client: connections, registries, the live bookies, the placement of
ensembles."""

from __future__ import annotations

import logging
import random
from collections.abc import Coroutine, Mapping, Sequence, Set
from typing import Final, Protocol

from magnetar.base.errors import MetadataError
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.client.placement import RackPlacement
from magnetar.ledger.client.pool import BookiePool
from magnetar.ledger.quorum.effects import ChooseBookies
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.rules import READING_RULES, ReadingRules
from magnetar.ledger.registry import LedgerRegistry
from magnetar.metadata.bookkeeper.registry import LiveBookies, RegisteredBookie
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.ledger.client")

_LOOK_S: Final = 0.2
"""Seconds between two searches for a replacement."""


class Bookies(Protocol):
    """The part of `BookieRegistry` that a ledger client needs."""

    async def bookies(self) -> LiveBookies:
        """The registered bookies."""

    async def info(self, bookie_id: str) -> RegisteredBookie | None:
        """The record of a registered bookie."""


def by_chance(names: Sequence[str]) -> list[str]:
    """A random order in which placements take bookies that are equally good."""
    return random.sample(names, len(names))


class Placement(Protocol):
    """Chooses bookies: RackPlacement, RegionPlacement."""

    def new_ensemble(
        self, layout: QuorumLayout, writable: Set[str], avoid: Set[str] = frozenset()
    ) -> tuple[str, ...]:
        """Bookies of a new ledger. Raises NotEnoughBookiesError."""

    def replacements(
        self,
        layout: QuorumLayout,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        writable: Set[str],
        exclude: Set[str],
        avoid: Set[str] = frozenset(),
    ) -> dict[int, str]:
        """The bookies that replace the failed ones."""


class Cluster:
    """Bookies and metadata from the point of view of one client."""

    def __init__(
        self,
        ledgers: LedgerRegistry,
        bookies: Bookies,
        options: LedgerClientOptions | None = None,
        *,
        placement: Placement | None = None,
        reading: ReadingRules = READING_RULES,
    ) -> None:
        """`placement`: chooses bookies; None: all are in one rack."""
        self.reading: Final = reading
        self.ledgers: Final = ledgers
        self.options: Final = options or LedgerClientOptions()
        self.pool: Final = BookiePool(self._address, self.options)
        self._bookies = bookies
        self._known = LiveBookies(frozenset(), frozenset())
        self._placement: Placement = placement or RackPlacement(shuffled=by_chance)

    async def _address(self, bookie: str) -> tuple[str, int] | None:
        info = await self._bookies.info(bookie)
        # A bookie that is not registered may be up all the same; its id often is its address.
        return (info or RegisteredBookie(bookie)).address()

    async def _writable(self) -> frozenset[str]:
        try:
            self._known = await self._bookies.bookies()
        except MetadataError as error:  # as the line says; a writer learns of a dead bookie from its answers
            _log.warning("the available bookies are not known, the last known ones are used: %s", error)
        return self._known.writable

    async def new_ensemble(self, layout: QuorumLayout) -> tuple[str, ...]:
        """Bookies of a new ledger. Raises NotEnoughBookiesError."""
        avoid = self.pool.health.quarantined(self.pool.now_s)
        return self._placement.new_ensemble(layout, await self._writable(), avoid)

    async def replacements(
        self, layout: QuorumLayout, ensemble: Sequence[str], choose: ChooseBookies, *, patient: bool = True
    ) -> dict[int, str]:
        """Answers ChooseBookies; when there is no bookie, `patient` waits for one to register."""
        deadline_s = self.pool.now_s + (self.options.replacement_wait_s if patient else 0.0)
        while True:
            chosen = await self._replacements_now(layout, ensemble, choose)
            if chosen or self.pool.is_closed or self.pool.now_s >= deadline_s:
                return chosen
            await pause(_LOOK_S)

    async def _replacements_now(
        self, layout: QuorumLayout, ensemble: Sequence[str], choose: ChooseBookies
    ) -> dict[int, str]:
        avoid = self.pool.health.quarantined(self.pool.now_s)
        writable = await self._writable()
        chosen = self._placement.replacements(
            layout, ensemble, choose.failed, writable, choose.exclude, avoid
        )
        lost = {index: bookie for index, bookie in choose.failed.items() if index not in chosen}
        if lost:
            # A bookie that failed before and is up again has all that it acknowledged: better than none.
            members = [chosen.get(index, bookie) for index, bookie in enumerate(ensemble)]
            staying = {bookie for index, bookie in enumerate(members) if index not in lost}
            failed = sorted(writable & choose.exclude - staying)
            back = {bookie for bookie in failed if await self.pool.came_back(bookie)}
            # In their own places first: a bookie that took another's place while its own stayed free would be
            # a member twice, and its answers would count as those of two.
            own = {index: bookie for index, bookie in lost.items() if bookie in back}
            chosen |= own
            left = {index: bookie for index, bookie in lost.items() if index not in own}
            others = frozenset(back - set(own.values()))
            chosen |= self._placement.replacements(layout, members, left, others, frozenset(), avoid)
        return chosen

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Runs `work` in the background as long as the client lives."""
        self.pool.tasks.spawn(work)

    async def close(self) -> None:
        """Drops all connections."""
        await self.pool.close()
