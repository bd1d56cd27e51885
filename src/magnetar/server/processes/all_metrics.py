"""The metrics of all processes of this machine as one scrape, whichever process answers it. Driver.

Every sample has a label `process`: the number of a broker process, `storage`, or the name of a bookie that
the storage process has beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import StorageError
from magnetar.observability.merging import as_answer, from_answer, merged, ups
from magnetar.observability.metrics import FamilyText, Registry
from magnetar.runtime.flights import NextFlight
from magnetar.runtime.local_calls import call
from magnetar.runtime.scraping import families_of
from magnetar.runtime.tasks import gathered

if TYPE_CHECKING:
    from magnetar.broker.service import Broker
    from magnetar.server.processes.seat import Seat

_log = logging.getLogger("magnetar.server")

METRICS: Final = "metrics"
"""The call that asks another process for its metrics."""
STORAGE: Final = "storage"
"""The label of the storage process."""
_WITHIN_S: Final = 5.0
"""Seconds for the answer of another process; Prometheus waits for 10 s by default."""


class AllMetrics:
    """As one of the broker processes gives them."""

    def __init__(self, seat: Seat, broker: Broker) -> None:
        self._seat = seat
        self._broker = broker
        self._registry: Registry | None = None
        """For these scrapes, which have rates of their own; None: there was none yet."""
        self._scrapes = NextFlight(self._scrape)
        self.ports = frozenset(port for port in (seat.shared.http, seat.shared.https) if port)
        """See `SharedScrape`."""

    async def answer(self, said: Mapping[str, str]) -> object:
        """Answers another process with the families of this one."""
        return as_answer(await self._own())

    async def scraped(self) -> str:
        """See `SharedScrape`. One is made at a time, for all that wait for it."""
        return await self._scrapes.landing()

    async def _scrape(self) -> str:
        places = {str(number): self._seat.calls(number) for number in self._seat.own}
        del places[str(self._seat.number)]
        if (storage := self._seat.storage_calls) is not None:
            places[STORAGE] = storage
        own, *others = await gathered([self._own(), *(self._of(*each) for each in places.items())])
        answered = {str(self._seat.number): True, **dict(zip(places, map(bool, others), strict=True))}
        return merged([own or [], *(each for each in others if each), ups(answered)])

    async def _own(self) -> list[FamilyText]:
        if self._registry is None:
            # A process that is not scraped at the shared port needs none of it.
            from magnetar.admin.metrics.broker_metrics import registry_for

            self._registry = registry_for(self._broker)
        return await families_of(self._registry, str(self._seat.number))

    @staticmethod
    async def _of(process: str, place: Path) -> list[FamilyText] | None:
        try:
            return from_answer(await call(place, METRICS, within_s=_WITHIN_S))
        except StorageError as error:
            _log.info("process %s is left out of a scrape: %s", process, error)
            return None
