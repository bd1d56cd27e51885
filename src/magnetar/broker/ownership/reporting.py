"""This broker's report: what it has to do, told to the others every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MagnetarError, MetadataError
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.ownership.peers import BrokerIdTakenError, Peers
from magnetar.broker.ownership.records import BrokerReport, BrokerUrls, Load
from magnetar.metadata.contact import Contact
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.broker.ownership")

REPORT_S: Final = 5.0
"""Between two reports, and the age from which bundles that were sent to a broker are in its report."""
_AGAIN_S: Final = 0.1
"""Between two attempts to show the report in a new session."""


@dataclass(frozen=True, slots=True)
class ReportedProcess:
    """What stays the same in all reports of a process; see `BrokerReport`."""

    urls: BrokerUrls
    socket: str
    version: str
    started_ms: int


class Reporting:
    """The reports of one broker."""

    def __init__(
        self,
        own: ReportedProcess,
        ownership: Ownership,
        peers: Peers,
        contact: Contact,
        clock: Clock,
        load: Callable[[], Awaitable[Load]],
    ) -> None:
        """`load` says what this broker has to do, but for the number of its bundles."""
        self.leaving = False
        """Whether the process is being stopped."""
        self.last: BrokerReport | None = None
        """What was told last; None: nothing yet."""
        self._own = own
        self._peers = peers
        self._ownership = ownership
        self._contact = contact
        self._clock = clock
        self._load = load

    async def show(self) -> None:
        """Writes the report. Raises BrokerIdTakenError, MetadataError."""
        load = replace(await self._load(), bundles=len(self._ownership))
        own = self._own
        self.last = BrokerReport(
            own.urls,
            load,
            self.leaving,
            own.started_ms,
            own.version,
            own.socket,
            self._contact.outages,
            reported_ms=self._clock.now_ms(),
        )
        await self._peers.show(self.last)

    async def round(self) -> None:
        """Writes the report, if the metadata service can be reached."""
        if not self._ownership.session or self._contact.away:
            return
        try:
            await self.show()
        except (BrokerIdTakenError, MetadataError) as error:
            # It gets no bundles by this table; those that it has are where their records say.
            _log.error("this broker's report could not be written: %s", error)

    async def rejoin(self) -> None:
        """Writes the report in a new session, for as long as that lasts."""
        self._peers.look_again()
        session = self._ownership.session
        while self._ownership.session == session:
            try:
                await self.show()
            except MagnetarError as error:
                # The loop is the retry, for as long as the session lasts.
                _log.warning("this broker cannot join the cluster again yet: %s", error)
                await pause(_AGAIN_S)
            else:
                return
