"""The auditor's periodic checks of all ledgers: samples, placement, replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import LedgerError, MetadataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.autorecovery.checker import LedgerChecker
from magnetar.ledger.autorecovery.fragments import Lack
from magnetar.ledger.autorecovery.missing import fewest_copies
from magnetar.ledger.autorecovery.placing import PlacementCheck
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.ledger_metadata import LedgerMetadataError
from magnetar.ledger.registry import LedgerRegistry, StoredLedger
from magnetar.metadata.bookkeeper.registry import BookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.bookkeeper.underreplication import AuditCheck
from magnetar.runtime.tasks import pause

_log = logging.getLogger("magnetar.ledger.autorecovery")

_RETRY_S: Final = 10.0
"""Seconds after a failed check, and between two readings whether auto-recovery is enabled again."""


@dataclass(slots=True)
class CheckCounts:
    """Results and counts of the last checks."""

    ledgers_checked: int = 0
    """Ledgers checked, by all checks together."""
    not_adhering: int = 0
    no_replica: int = 0
    """Ledgers with an entry that no bookie has; the next two count other ledgers."""
    below_ack_quorum: int = 0
    below_write_quorum: int = 0


class AuditChecks:
    """Marks ledgers that lack something. Runs on one node of the cluster: the auditor."""

    def __init__(
        self,
        ledgers: LedgerRegistry,
        bookies: BookieRegistry,
        marks: UnderreplicatedLedgers,
        checker: LedgerChecker,
        placement: PlacementCheck,
        options: RecoveryOptions,
    ) -> None:
        self._ledgers = ledgers
        self._bookies = bookies
        self._marks = marks
        self._checker = checker
        self._placement = placement
        self._checks: dict[AuditCheck, tuple[float, Callable[[], Awaitable[None]]]] = {
            AuditCheck.SAMPLES: (options.check_all_s, self._samples),
            AuditCheck.PLACEMENT: (options.check_placement_s, self._placements),
            AuditCheck.REPLICAS: (options.check_replicas_s, self._replicas),
        }
        self.counts: Final = CheckCounts()

    async def run(self) -> None:
        """Works until cancelled; returns at once when no check is configured."""
        loop = asyncio.get_running_loop()
        due_s = {check: loop.time() for check, (interval_s, _) in self._checks.items() if interval_s > 0}
        known: set[AuditCheck] = set()
        while due_s:
            check = min(due_s, key=due_s.__getitem__)
            await pause(max(0.0, due_s[check] - loop.time()))
            interval_s, work = self._checks[check]
            try:
                if check not in known:
                    # The former auditor may have checked lately.
                    since_s = await self._marks.since_checked_s(check)
                    known.add(check)
                    if since_s is not None and since_s < interval_s:
                        due_s[check] = loop.time() + interval_s - since_s
                        continue
                if not await self._marks.enabled():
                    due_s[check] = loop.time() + min(interval_s, _RETRY_S)
                    continue
                await work()
                await self._marks.note_checked(check)
                due_s[check] = loop.time() + interval_s
            except (MetadataError, LedgerError) as error:
                _log.warning("a check of all ledgers (%s) is tried again: %s", check.name.lower(), error)
                due_s[check] = loop.time() + min(interval_s, _RETRY_S)

    async def _every(self) -> AsyncIterator[StoredLedger]:
        async for ledger_id in self._ledgers.ledger_ids():
            stored = await stored_ledger(self._ledgers, ledger_id)
            if stored is not None:
                self.counts.ledgers_checked += 1
                yield stored

    async def _samples(self) -> None:
        async for stored in self._every():
            live = (await self._bookies.bookies()).all()
            await self._mark(stored, await self._checker.lacks(stored, live))

    async def _replicas(self) -> None:
        none = below_ack = below_write = 0
        async for stored in self._every():
            live = (await self._bookies.bookies()).all()
            lacks = await self._checker.lacks(stored, live, live, reads_all=False)
            await self._mark(stored, lacks)
            copies = min(map(_copies, lacks), default=stored.metadata.write_quorum)
            none += copies <= 0
            below_ack += 0 < copies < stored.metadata.ack_quorum
            below_write += stored.metadata.ack_quorum <= copies < stored.metadata.write_quorum
        counts = self.counts
        counts.no_replica, counts.below_ack_quorum, counts.below_write_quorum = none, below_ack, below_write

    async def _mark(self, stored: StoredLedger, lacks: list[Lack]) -> None:
        """Marks losses, except those at a lost bookie: for that one the auditor waits."""
        holders = {bookie for lack in lacks for bookie in lack.places.values()}
        if holders:
            away = await self._bookies.known_bookies() - (await self._bookies.bookies()).all()
            if at := holders - away:
                _log.warning("ledger %d lacks copies on %s", stored.ledger_id, ", ".join(sorted(at)))
                await self._marks.mark(stored.ledger_id, frozenset(at))

    async def _placements(self) -> None:
        await self._placement.racks.load()
        if not self._placement.racks.any_known:
            _log.warning("placement is not checked: %s has no racks", self._placement.racks.path)
        broken = 0
        async for stored in self._every():
            if self._placement.broken(stored):
                broken += 1
                if await self._placement.plan(stored):
                    await self._marks.mark(stored.ledger_id, frozenset())
        self.counts.not_adhering = broken


def _copies(lack: Lack) -> int:
    if lack.fragment.is_open:
        return lack.fragment.layout.write_quorum
    return fewest_copies(lack.fragment, lack.places.keys() - lack.missing.keys(), lack.missing)


async def stored_ledger(ledgers: LedgerRegistry, ledger_id: LedgerId) -> StoredLedger | None:
    """A ledger of a listing; None when it was deleted, or its metadata cannot be decoded: one such ledger
    must not stop the check of all others. Raises MetadataError."""
    with contextlib.suppress(NoSuchLedgerError):  # deleted since the listing
        try:
            return await ledgers.read(ledger_id)
        except LedgerMetadataError as error:  # the docstring's rule: one such ledger must not stop the others
            _log.error("ledger %d cannot be checked: %s", ledger_id, error)
    return None
