"""The brokers of the cluster: this one's record, and the table of the others.

Driver: reads a record below `/loadbalance/brokers` anew when it has changed, and all of them, with
`/magnetar/drains`, when changes may have been missed. Each broker writes its record every few seconds: if
each of N brokers read all records for that, N reports would cost the metadata service N³ reads.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError, StartupError
from magnetar.broker.ownership.records import DRAINS, BrokerReport, BrokerUrls
from magnetar.metadata import keys
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    MetadataStore,
    NotFoundError,
    Notification,
    Value,
    delete_as_read,
)
from magnetar.runtime.tasks import Rounds, SingleFlight, pause
from magnetar.runtime.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = logging.getLogger("magnetar.broker.ownership")

Probe = Callable[[str, int], Awaitable[bool]]
"""Whether nothing listens at a host and port, for certain."""

_PROBE_PAUSE_S: Final = 0.1
"""Between the two attempts to connect to a broker that may be dead."""
_ANSWER_MS: Final = 1000
"""For so long the answer of a probe counts."""


_TAKEN_LOOK_S: Final = 0.1
"""Between two looks at a record of this broker's id that another process made."""
_TAKEN_WAIT_S: Final = 30.0
"""How long the end of that process's session is waited for: longer than sessions last by default."""


class BrokerIdTakenError(StartupError):
    """Another process has the id of this broker."""

    def __init__(self, broker_id: str) -> None:
        super().__init__(
            f"another broker is known as {broker_id}, and its session has not ended: give this one another"
            " --advertised-address or --http-port, or stop the other one"
        )


class Peers:
    """The peers of one broker."""

    def __init__(
        self,
        store: MetadataStore,
        own_id: str,
        *,
        socket: str,
        clock: Clock,
        probe: Probe,
        spawn: Callable[[Coroutine[object, object, None]], None],
        changed: Callable[[], None],
    ) -> None:
        """`socket`: see `BrokerReport`. `changed` is called after the table was read anew."""
        self.reports: dict[str, BrokerReport] = {}
        """Brokers with a session, this one too, by id."""
        self.drained: frozenset[str] = frozenset()
        """Brokers that are to own nothing, whether they are there or not."""
        self.leaving: frozenset[str] = frozenset()
        """Brokers that are being stopped together with this one."""
        self._store = store
        self._own_id = own_id
        self._socket = socket
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
        self._begun = 0
        """Readings of the table that have begun."""
        self._told = 0
        """The reading of all records, by its number, that the table is from."""
        self._newer: dict[str, tuple[int, BrokerReport | None]] = {}
        """What later readings of single records found, with their numbers: the table has it too."""
        self._changed_names: set[str] = set()
        """Brokers whose records changed after they were read."""
        self._any_changed = False
        """Whether all records are to be read."""
        self._turns = Turns()
        self._watches = (
            store.watch(keys.BROKERS, self._record_changed),
            store.watch(DRAINS, lambda _: self.look_again()),
        )

    def close(self) -> None:
        """Stops watching."""
        for cancel in self._watches:
            cancel()

    def urls_of(self, broker_id: str | None) -> BrokerUrls | None:
        """How another broker is reached; None: it is this one, or not there."""
        report = self.reports.get(broker_id or "")
        return None if report is None or report.broker_id == self._own_id else report.urls

    def look_again(self) -> None:
        """Reads the whole table anew, soon."""
        self._any_changed = True
        self._rounds.ask()

    def _record_changed(self, notification: Notification) -> None:
        name = notification.path.removeprefix(f"{keys.BROKERS}/")
        if name == notification.path or notification.change is Change.CHILDREN_CHANGED:
            # The change of the child itself is told as well.
            return
        self._changed_names.add(name)
        self._rounds.ask()

    def able(self) -> list[BrokerReport]:
        """Brokers that may get bundles, in no order."""
        now_ms = self._clock.monotonic_ms()
        return [
            report
            for broker_id, report in self.reports.items()
            if self.takes_bundles(broker_id) and not self._was_dead(broker_id, now_ms)
        ]

    def takes_bundles(self, broker_id: str) -> bool:
        """Whether the broker is there and does not drain, for an operator or because it is being stopped."""
        report = self.reports.get(broker_id)
        leaves = broker_id in self.drained or broker_id in self.leaving
        return report is not None and not (report.draining or leaves)

    # -- this broker -------------------------------------------------------------------------------

    def session_lost(self) -> None:
        """The record of this broker has gone with the session."""
        self._version = None
        self._ended += 1

    @property
    def shown(self) -> bool:
        """Whether this process has the record of its id, in the session that lasts."""
        return self._version is not None

    async def show(self, report: BrokerReport) -> None:
        """Writes this broker's record. Raises BrokerIdTakenError, MetadataError."""
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
        while True:
            await self._take_place(path)
            with contextlib.suppress(BadVersionError):  # another process was faster: its record is looked at
                stat = await self._store.put(path, data, expected_version=MUST_NOT_EXIST, ephemeral=True)
                return stat.version

    async def _take_place(self, path: str) -> None:
        """Returns when no other process has the record of this broker's id.

        A former process that had this one's listening socket is gone. Of any other one only the end of its
        session says so: it may be at another machine of the same name, or behind the same load balancer.
        """
        found = await self._store.get(path)
        if found is None:
            return
        if not (found.stat.created_by_self or self._had_this_socket(found)):
            await self._end_of(path, found)
            return
        with contextlib.suppress(NotFoundError, BadVersionError):  # its session has ended
            await delete_as_read(self._store, path, found.stat)

    def _had_this_socket(self, value: Value) -> bool:
        try:
            return BrokerReport.decode(value.data).socket == self._socket != ""
        except ValueError:
            # Whose it is cannot be read: its session says when it is gone.
            return False

    async def _end_of(self, path: str, found: Value) -> None:
        """Returns when the record is gone. Raises BrokerIdTakenError when its process writes another
        report, or stays."""
        _log.warning("another process is known as %s; waiting for the end of its session", self._own_id)
        until_ms = self._clock.monotonic_ms() + _TAKEN_WAIT_S * 1000
        now: Value | None = found
        while now is not None:
            # Where a report is a new node each time, its version stays.
            if now.stat != found.stat or self._clock.monotonic_ms() >= until_ms:
                raise BrokerIdTakenError(self._own_id)
            await pause(_TAKEN_LOOK_S)
            now = await self._store.get(path)

    async def leave(self) -> None:
        """Removes this broker's record. Raises MetadataError."""
        version, self._version = self._version, None
        if version is not None:
            with contextlib.suppress(NotFoundError, BadVersionError):  # the end of the session took it
                await self._store.delete(keys.broker(self._own_id), expected_version=version)

    # -- the others --------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads the table, which stays the one of a reading that began later. Raises MetadataError."""
        self._begun += 1
        number = self._begun
        found = {name: await self._report(name) for name in await self._store.children(keys.BROKERS)}
        drained = frozenset(await self._store.children(DRAINS))
        if number < self._told:
            # It may have begun before this broker's record was there.
            return
        self._told = number
        # Single records that were read meanwhile are newer than what is here.
        self._newer = {name: read for name, read in self._newer.items() if read[0] > number}
        found |= {name: report for name, (_, report) in self._newer.items()}
        self.reports = {name: report for name, report in found.items() if report is not None}
        self.drained = drained

    async def _load_one(self, name: str) -> None:
        """Reads one record. Raises MetadataError."""
        self._begun += 1
        number = self._begun
        report = await self._report(name)
        if number < max(self._told, self._newer.get(name, (0, None))[0]):
            # A reading that began later has told already.
            return
        self._newer[name] = number, report
        others = {each: told for each, told in self.reports.items() if each != name}
        self.reports = others if report is None else {**others, name: report}

    async def _report(self, name: str) -> BrokerReport | None:
        """The record of a broker; None when there is none that is understood. Raises MetadataError."""
        value = await self._store.get(keys.broker(name))
        if value is None:
            return None
        try:
            report = BrokerReport.decode(value.data)
            if report.broker_id != name:
                raise ValueError(f"it is about {report.broker_id}")
        except ValueError as error:
            # It gets no bundles; those that it has are where their records say.
            _log.warning("the record of broker %s is not understood: %s", name, error)
            return None
        return report

    async def _reload(self) -> None:
        names, everything = self._changed_names, self._any_changed
        self._changed_names, self._any_changed = set(), False
        try:
            if everything:
                await self.load()
            else:
                for name in sorted(names):
                    await self._load_one(name)
        except MetadataError as error:
            # What was known is better than nothing; the connection's return asks again.
            self._any_changed = True
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

    async def is_gone(self, urls: BrokerUrls) -> bool:
        """Whether no client is to be sent to the broker: its process is gone, or has no session any more.

        The table is behind by the time that its reading takes. A broker that hangs still accepts connections:
        after the end of its session clients were sent there, to wait without an answer. Raises MetadataError.
        """
        return await self.is_dead(urls) or not await self._store.exists(keys.broker(urls.broker_id))

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
