"""The auditor: one node of the cluster, by election, marks the ledgers that lack copies."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar.base.errors import LedgerError, MetadataError
from magnetar.ledger.autorecovery.checks import AuditChecks, stored_ledger
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.autorecovery.repair_rules import REPAIR_RULES, RepairRules
from magnetar.ledger.autorecovery.schedule import AuditSchedule
from magnetar.ledger.registry import LedgerRegistry
from magnetar.metadata.bookkeeper.election import AuditorElection
from magnetar.metadata.bookkeeper.registry import BookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.runtime.tasks import TaskGroup, happens_within

_log = logging.getLogger("magnetar.ledger.autorecovery")

_RETRY_S: Final = 1.0
_IDLE_S: Final = 60.0
"""Longest time in seconds between two readings of the clock."""


class Auditor:
    """A candidate for auditor, and the audits while it is elected."""

    def __init__(
        self,
        ledgers: LedgerRegistry,
        bookies: BookieRegistry,
        marks: UnderreplicatedLedgers,
        election: AuditorElection,
        checks: AuditChecks,
        options: RecoveryOptions,
        rules: RepairRules = REPAIR_RULES,
    ) -> None:
        self._rules = rules
        self._ledgers = ledgers
        self._bookies = bookies
        self._marks = marks
        self._election = election
        self._checks = checks
        self._checking = TaskGroup("checks of the auditor")
        self._options = options
        self._changed = asyncio.Event()
        self._delay_touched = False
        self._schedule: AuditSchedule | None = None
        self._checked_bookies_s = 0.0
        self.is_elected = False
        self.lost: frozenset[str] = frozenset()
        """Bookies that are known and not registered."""

    async def run(self) -> None:
        """Works until cancelled."""
        unwatch_bookies = self._bookies.watch_bookies(self._changed.set)
        unwatch_marks = self._marks.watch(self._touched)
        try:
            while True:
                self._changed.clear()
                try:
                    wait_s = await self._round()
                except (MetadataError, LedgerError) as error:
                    _log.warning("the auditor tries again: %s", error)
                    wait_s = _RETRY_S
                await happens_within(self._changed, wait_s)
        finally:
            unwatch_bookies()
            unwatch_marks()
            await self._checking.close()

    @property
    def delayed(self) -> tuple[int, int]:
        """In this term: audits delayed for a lost bookie, and those of them that were not needed."""
        return (0, 0) if self._schedule is None else (self._schedule.delayed, self._schedule.called_off)

    def _touched(self, path: str) -> None:
        paths = self._marks.paths
        if path in (paths.lost_bookie_delay, paths.root):
            self._delay_touched = self._delay_touched or path == paths.lost_bookie_delay
            self._changed.set()
        elif path == paths.disable or path.startswith(paths.election):
            self._changed.set()

    async def _round(self) -> float:
        """Does what is due; returns the seconds until something is due again."""
        if not await self._election.wins():
            if self.is_elected:
                self.is_elected, self._schedule, self.lost = False, None, frozenset()
                await self._checking.close()
            return _IDLE_S
        now_s = asyncio.get_running_loop().time()
        if self._schedule is None:
            self._schedule = await self._take_office(now_s)
        schedule = self._schedule
        if self._delay_touched:
            self._delay_touched = False
            schedule.delay_set(await self._delay_s(), now_s)
        if not await self._marks.enabled():
            return _IDLE_S
        lost = await self._bookies.known_bookies() - (await self._bookies.bookies()).all()
        self.lost = lost
        schedule.lost(lost, now_s)
        is_due = schedule.take_due(now_s)
        if is_due or now_s - self._checked_bookies_s >= self._options.check_bookies_s:
            try:
                await self._audit(lost)
            except (MetadataError, LedgerError):
                schedule.failed(now_s + self._rules.audit_retry_s)
                raise
            if is_due:
                schedule.done(now_s)
            self._checked_bookies_s = now_s
        dues = [_IDLE_S, self._checked_bookies_s + self._options.check_bookies_s - now_s]
        if schedule.due_s is not None:
            dues.append(schedule.due_s - now_s)
        return max(0.0, min(dues))

    async def _take_office(self, now_s: float) -> AuditSchedule:
        _log.info("%s is the auditor", self._options.node_id)
        self.is_elected = True
        await self._marks.propose_lost_bookie_delay(self._options.lost_bookie_delay_s)
        self._delay_touched = False
        # The former auditor may have checked just now.
        self._checked_bookies_s = now_s
        schedule = AuditSchedule(await self._delay_s(), self._rules.look_again_s)
        # In parallel: a check of all ledgers takes long, and a lost bookie cannot wait for it.
        self._checking = TaskGroup("checks of the auditor")
        self._checking.spawn(self._checks.run())
        return schedule

    async def _delay_s(self) -> int:
        delay_s = await self._marks.lost_bookie_delay_s()
        return self._options.lost_bookie_delay_s if delay_s is None else delay_s

    async def _audit(self, lost: frozenset[str]) -> None:
        """Marks all ledgers of these bookies."""
        if not lost:
            return
        _log.warning("ledgers of lost bookies are searched: %s", ", ".join(sorted(lost)))
        count = 0
        async for ledger_id in self._ledgers.ledger_ids():
            stored = await stored_ledger(self._ledgers, ledger_id)
            if stored is not None and (holders := self._rules.holders(stored.metadata, lost)):
                await self._marks.mark(ledger_id, holders)
                count += 1
        _log.warning("%d ledgers lack copies that lost bookies had", count)
