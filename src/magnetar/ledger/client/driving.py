"""Carries out what a core of `ledger.quorum` asks for, and returns the outcomes to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from magnetar.base.errors import LedgerError, MetadataError
from magnetar.ledger.api import LedgerEnd, NoSuchLedgerError
from magnetar.ledger.client import version3
from magnetar.ledger.client.cluster import Cluster
from magnetar.ledger.client.errors import error_of
from magnetar.ledger.client.pool import RecoveryRead
from magnetar.ledger.quorum.deferred import DeferredWriter
from magnetar.ledger.quorum.effects import (
    Advance,
    ChooseBookies,
    Closed,
    Effect,
    Failed,
    ReadMetadata,
    SendAdds,
    SendForce,
    SendRead,
    WriteMetadata,
)
from magnetar.ledger.quorum.layout import QuorumLayout
from magnetar.ledger.quorum.quorum_writer import QuorumWriter
from magnetar.ledger.quorum.recovery import LedgerRecovery
from magnetar.runtime.tasks import call_later, pause
from magnetar.wire.bookkeeper.requests import AddRun
from magnetar.wire.bookkeeper.status import Status

_log = logging.getLogger("magnetar.ledger.client")

_RETRY_S: Final = 0.2
_RETRY_S_MAX: Final = 5.0

_OF_THE_LEDGER: Final = (Status.FENCED, Status.UNAUTHORIZED)
"""Outcomes that do not count against the bookie."""

Core: TypeAlias = QuorumWriter | LedgerRecovery


class _Member:
    """Receives the answers of one member of the ensemble to adds."""

    __slots__ = ("_bookie", "_driver", "_index")

    def __init__(self, driver: CoreDriver, bookie: str, index: int) -> None:
        self._driver = driver
        self._bookie = bookie
        self._index = index

    def added(self, entry_ids: Sequence[int], status: Status) -> None:
        """Called by the connection."""
        driver = self._driver
        pool = driver.cluster.pool
        if status is Status.OK:
            pool.metrics.adds += len(entry_ids)
        else:
            pool.metrics.adds_failed += max(1, len(entry_ids))
            if status is Status.IO_ERROR:
                pool.health.failed(self._bookie, pool.now_s)
            if status not in _OF_THE_LEDGER:
                pool.health.refused(self._bookie, pool.now_s)
        driver.do(driver.core.added(self._bookie, self._index, entry_ids, status))
        if status is not Status.OK:
            driver.call_back_later()


class CoreDriver:
    """One core and its ledger. `over` is done when the core is."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        layout: QuorumLayout,
        master_key: bytes,
        *,
        advanced: Callable[[int], None] | None = None,
        failed: Callable[[LedgerError], None] | None = None,
        deferred_sync: bool = False,
    ) -> None:
        """`advanced` is called with confirmed entries; `failed`, at most once, when the core is over without
        an end.

        `deferred_sync`: bookies may acknowledge before entries are durable; `core` is a DeferredWriter.
        """
        self.cluster = cluster
        self.core = core
        self.error: LedgerError | None = None
        """Why the core is over, unless the ledger was closed."""
        self._layout = layout
        self._master_key = master_key
        self._is_recovery = isinstance(core, LedgerRecovery)
        self._deferred_sync = deferred_sync
        self._advanced = advanced
        self._failed = failed
        self._members: dict[tuple[str, int], _Member] = {}
        self._back: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[LedgerEnd] = asyncio.get_running_loop().create_future()

    async def end(self) -> LedgerEnd:
        """Waits until the ledger is closed. Raises the LedgerError that ended the core otherwise."""
        return await asyncio.shield(self._over)

    def do(self, effects: Sequence[Effect]) -> None:
        """Carries out the core's requests in order."""
        for effect in effects:
            if isinstance(effect, SendAdds):
                self._send_adds(effect)
            elif isinstance(effect, Advance):
                if self._advanced is not None:
                    self._advanced(effect.last_entry)
            elif isinstance(effect, SendRead):
                self._send_read(effect)
            elif isinstance(effect, SendForce):
                self._send_force(effect)
            elif isinstance(effect, WriteMetadata):
                self.cluster.spawn(self._write_metadata(effect))
            elif isinstance(effect, ReadMetadata):
                self.cluster.spawn(self._read_metadata())
            elif isinstance(effect, ChooseBookies):
                self.cluster.spawn(self._choose(effect))
            else:
                self._end(effect)

    def _send_adds(self, send: SendAdds) -> None:
        run = AddRun(
            self.core.ledger_id,
            self._master_key,
            recovery=send.recovery,
            high_priority=send.recovery,
            deferred_sync=self._deferred_sync,
            v3=not self.cluster.options.use_v2,
        )
        run.entry_ids = list(send.entry_ids)
        run.entries = list(send.entries)
        place = send.bookie, send.index
        member = self._members.get(place)
        if member is None:
            member = self._members[place] = _Member(self, *place)
        self.cluster.pool.send_adds(send.bookie, run, member)

    def _send_read(self, send: SendRead) -> None:
        core = self.core
        assert isinstance(core, LedgerRecovery)

        def answered(status: Status, entry: bytes | None) -> None:
            self.do(core.read(send.bookie, send.index, send.entry_id, status, entry))

        self.cluster.pool.read(
            send.bookie,
            core.ledger_id,
            send.entry_id,
            answered,
            recovery=RecoveryRead(self._master_key if send.fence else None),
        )

    def _send_force(self, send: SendForce) -> None:
        core = self.core
        assert isinstance(core, DeferredWriter)

        def answered(status: Status) -> None:
            self.do(core.forced(send.bookie, send.index, status))

        version3.force(self.cluster.pool, send.bookie, core.ledger_id, answered)

    async def _write_metadata(self, write: WriteMetadata) -> None:
        ledgers = self.cluster.ledgers
        try:
            stored = await ledgers.write(self.core.ledger_id, write.metadata, write.expected_version)
        except MetadataError as error:
            # Also when the outcome is unknown: the metadata is read and compared.
            _log.info("ledger %d: metadata not written: %s", self.core.ledger_id, error)
            self.cluster.pool.metrics.metadata_conflicts += 1
            self.do(self.core.metadata_conflict())
        else:
            self.do(self.core.metadata_written(stored.version))

    async def _read_metadata(self) -> None:
        delay_s = _RETRY_S
        while True:
            try:
                stored = await self.cluster.ledgers.read(self.core.ledger_id)
            except NoSuchLedgerError:
                self.do(self.core.metadata_read(None, -1))
                return
            except MetadataError as error:  # tried again below, after a pause that grows
                _log.warning("ledger %d: metadata not read: %s", self.core.ledger_id, error)
            else:
                self.do(self.core.metadata_read(stored.metadata, stored.version))
                return
            await pause(delay_s)
            delay_s = min(2 * delay_s, _RETRY_S_MAX)

    async def _choose(self, choose: ChooseBookies) -> None:
        self.cluster.pool.metrics.ensemble_changes += 1
        ensemble = self.core.ensemble
        # Nothing is confirmed meanwhile, so a bookie is not waited for where the others suffice.
        patient = not self.core.can_do_without
        chosen = await self.cluster.replacements(self._layout, ensemble, choose, patient=patient)
        _log.warning("ledger %d: %s", self.core.ledger_id, _change_in_words(choose, chosen))
        self.do(self.core.bookies_chosen(chosen))
        self.call_back_later()

    def call_back_later(self) -> None:
        """Members that are missing and not needed are tried again after a while."""
        if isinstance(self.core, QuorumWriter) and self.core.is_short and self._back is None:
            wait_s = self.cluster.options.call_back_s
            self._back = call_later(wait_s, self._take_back)

    def _take_back(self) -> None:
        self._back = None
        if isinstance(self.core, QuorumWriter) and self.core.is_short:
            self.do(self.core.take_back())
            self.call_back_later()

    def _end(self, effect: Closed | Failed) -> None:
        if self._back is not None:
            self._back.cancel()
        pool = self.cluster.pool
        for (bookie, _), member in self._members.items():
            pool.forget(bookie, self.core.ledger_id, member, recovery=self._is_recovery)
        if isinstance(effect, Closed):
            self._over.set_result(effect.end)
            return
        self.error = error_of(self.core.ledger_id, effect)
        self._over.set_exception(self.error)
        # A caller that does not wait for the end learns of it through `failed`.
        self._over.exception()
        if self._failed is not None:
            self._failed(self.error)


def _change_in_words(choose: ChooseBookies, chosen: dict[int, str]) -> str:
    parts = [
        f"{lost} is replaced by {chosen[index]}" if index in chosen else f"no bookie can replace {lost}"
        for index, lost in choose.failed.items()
    ]
    return ", ".join(parts)
