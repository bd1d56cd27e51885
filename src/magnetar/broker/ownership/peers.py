"""The brokers of the cluster: this one's record, and the table of the others.

Driver: reads `/loadbalance/brokers` and `/magnetar/drains` anew whenever something changed below them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.broker.ownership.records import DRAINS, BrokerReport, BrokerUrls
from magnetar.metadata import keys
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, NotFoundError
from magnetar.runtime.tasks import Rounds, SingleFlight, pause
from magnetar.runtime.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

_log = logging.getLogger("magnetar.broker.ownership")

Probe = Callable[[str, int], Awaitable[bool]]
"""Whether nothing listens at a host and port, for certain."""

_PROBE_PAUSE_S: Final = 0.1
"""Between the two attempts to connect to a broker that may be dead."""
_ANSWER_MS: Final = 1000
"""For so long the answer of a probe counts."""


class Peers:
    """The peers of one broker."""

    def __init__(
        self,
        store: MetadataStore,
        own_id: str,
        *,
        clock: Clock,
        probe: Probe,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called after the table was read anew."""
        self.reports: dict[str, BrokerReport] = {}
        """Brokers with a session, this one too, by id."""
        self.drained: frozenset[str] = frozenset()
        """Brokers that are to own nothing, whether they are there or not."""
        self._store = store
        self._own_id = own_id
        self._clock = clock
        self._probe = probe
        self._changed = changed
        self._rounds = Rounds(self._reload, spawn)
        self._probes: SingleFlight[bool] = SingleFlight()
        self._answers: dict[str, tuple[float, bool]] = {}
        self._version: int | None = None
        """Version of this broker's record; None: it may not exist."""
        self._ended = 0
        """How many sessions have ended."""
        self._turns = Turns()
        self._watches = (
            store.watch(keys.BROKERS, lambda _: self._rounds.ask()),
            store.watch(DRAINS, lambda _: self._rounds.ask()),
        )

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._watches:
            cancel()

    def look_again(self) -> None:
        """Reads the table anew, soon."""
        self._rounds.ask()

    def able(self) -> list[BrokerReport]:
        """Brokers that may get bundles, in no order."""
        now_ms = self._clock.monotonic_ms()
        return [
            report
            for broker_id, report in self.reports.items()
            if not (report.draining or broker_id in self.drained or self._was_dead(broker_id, now_ms))
        ]

    # -- this broker -------------------------------------------------------------------------------

    def session_lost(self) -> None:
        """The record of this broker has gone with the session."""
        self._version = None
        self._ended += 1

    async def show(self, report: BrokerReport) -> None:
        """Writes this broker's record. Raises MetadataError."""
        async with self._turns.hold((self._own_id,)):
            ended = self._ended
            version = await self._write(keys.broker(self._own_id), report.encode(), self._version)
            if ended == self._ended:
                # Otherwise the record has gone with the session that made it.
                self._version = version

    async def _write(self, path: str, data: bytes, version: int | None) -> int:
        """The version that the record has now. `version`: of the one that is there; None: none is known."""
        if version is not None:
            with contextlib.suppress(BadVersionError):  # another process removed it: it is created again
                stat = await self._store.put(path, data, expected_version=version, ephemeral=True)
                return stat.version
        await self._take_place(path)
        return (await self._store.put(path, data, expected_version=MUST_NOT_EXIST, ephemeral=True)).version

    async def _take_place(self, path: str) -> None:
        """Removes the record of an earlier process. It is gone: this one listens on its port."""
        found = await self._store.get(path)
        if found is not None:
            with contextlib.suppress(NotFoundError, BadVersionError):  # its session has ended
                await self._store.delete(path, expected_version=found.stat.version)

    async def leave(self) -> None:
        """Removes this broker's record. Raises MetadataError."""
        if self._version is not None:
            self._version = None
            with contextlib.suppress(NotFoundError):  # the end of the session took it
                await self._store.delete(keys.broker(self._own_id))

    # -- the others --------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads the table. Raises MetadataError."""
        reports: dict[str, BrokerReport] = {}
        for name in await self._store.children(keys.BROKERS):
            value = await self._store.get(keys.broker(name))
            if value is None:
                continue
            try:
                report = BrokerReport.decode(value.data)
                if report.broker_id != name:
                    raise ValueError(f"it is about {report.broker_id}")
                reports[name] = report
            except ValueError as error:
                # It gets no bundles; those that it has are where their records say.
                _log.warning("the record of broker %s is not understood: %s", name, error)
        self.reports = reports
        self.drained = frozenset(await self._store.children(DRAINS))

    async def _reload(self) -> None:
        try:
            await self.load()
        except MetadataError as error:
            # What was known is better than nothing; the connection's return asks again.
            _log.warning("the brokers of the cluster could not be read: %s", error)
            return
        self._changed()

    async def is_dead(self, urls: BrokerUrls) -> bool:
        """Whether the broker's process is certainly gone: its port refused connections twice."""
        broker_id = urls.broker_id
        known = self._answers.get(broker_id)
        if known is not None and self._clock.monotonic_ms() - known[0] < _ANSWER_MS:
            return known[1]
        return await self._probes.run(broker_id, lambda: self._ask(urls))

    def _was_dead(self, broker_id: str, now_ms: float) -> bool:
        known = self._answers.get(broker_id)
        return known is not None and known[1] and now_ms - known[0] < 10 * _ANSWER_MS

    async def _ask(self, urls: BrokerUrls) -> bool:
        at = urlsplit(urls.addresses.plain or urls.addresses.tls)
        dead = False
        if at.hostname and at.port:
            dead = await self._probe(at.hostname, at.port)
            if dead:
                await pause(_PROBE_PAUSE_S)
                dead = await self._probe(at.hostname, at.port)
        self._answers[urls.broker_id] = self._clock.monotonic_ms(), dead
        return dead
