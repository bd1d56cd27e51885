"""The replication worker: takes marked ledgers one after the other and restores their copies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import CorruptDataError, LedgerError, MetadataError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchLedgerError
from magnetar.ledger.autorecovery.checker import LedgerChecker
from magnetar.ledger.autorecovery.fragments import Lack
from magnetar.ledger.autorecovery.placing import PlacementCheck
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.autorecovery.replicating import Replicator
from magnetar.ledger.client.ledger_client import LedgerClient
from magnetar.metadata.bookkeeper.racks import RacksError
from magnetar.metadata.bookkeeper.registry import BookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.runtime.tasks import TaskGroup, happens_within, pause

_log = logging.getLogger("magnetar.ledger.autorecovery")

_IDLE_S: Final = 60.0
_RETRY_S: Final = 1.0


class ReplicationWorker:
    """One worker; any number of nodes may have one."""

    def __init__(
        self,
        client: LedgerClient,
        bookies: BookieRegistry,
        marks: UnderreplicatedLedgers,
        checker: LedgerChecker,
        placement: PlacementCheck,
        replicator: Replicator,
        options: RecoveryOptions,
    ) -> None:
        self._client = client
        self._bookies = bookies
        self._marks = marks
        self._checker = checker
        self._placement = placement
        self._replicator = replicator
        self._options = options
        self._changed = asyncio.Event()
        self._failures: dict[int, tuple[int, float]] = {}
        """Ledgers whose repair failed: how often, and when it is tried again."""
        self._deferred: set[int] = set()
        """Ledgers whose writers still have time; they are locked."""
        self._held: set[int] = set()
        """Ledgers whose locks may be held: after a lost answer a lock may be this worker's own, and lasts as
        long as the session."""
        self._tasks = TaskGroup("open ledgers that lack copies")
        self.repaired = 0
        """Ledgers whose marks this worker removed."""
        self.placed = 0
        """Ledgers whose copies this worker moved to other racks."""
        self.failed = 0
        """Failed repairs."""
        self.deferred = 0
        """Ledgers that were left to their writers for a while."""
        self.marked = 0
        """Ledgers that were marked at the last listing."""

    async def run(self) -> None:
        """Works until cancelled."""
        unwatch = self._marks.watch(self._touched)
        unwatch_bookies = self._bookies.watch_bookies(self._bookies_changed)
        try:
            while True:
                self._changed.clear()
                try:
                    wait_s = await self._round()
                except MetadataError as error:
                    _log.warning("the replication worker tries again: %s", error)
                    wait_s = _RETRY_S
                await happens_within(self._changed, wait_s)
        finally:
            unwatch()
            unwatch_bookies()
            await self._tasks.close()

    def _touched(self, path: str) -> None:
        paths = self._marks.paths
        if path in (paths.disable, paths.root) or path.startswith((paths.ledgers, paths.locks)):
            self._changed.set()

    def _bookies_changed(self) -> None:
        # Failed repairs may succeed now.
        self._failures = {ledger_id: (count, 0.0) for ledger_id, (count, _) in self._failures.items()}
        self._changed.set()

    async def _round(self) -> float:
        """Goes through the list once; returns the seconds to wait for events before the next round."""
        now_s = asyncio.get_running_loop().time()
        wait_s = _IDLE_S
        if not await self._marks.enabled():
            return wait_s
        locked = await self._marks.locked()
        marked = [ledger_id async for ledger_id in self._marks.marked()]
        self.marked = len(marked)
        await self._load_racks()
        # Other workers may have repaired some of them.
        self._failures = {key: self._failures[key] for key in marked if key in self._failures}
        for ledger_id in marked:
            _, again_s = self._failures.get(ledger_id, (0, 0.0))
            if again_s > now_s:
                wait_s = min(wait_s, again_s - now_s)
            elif ledger_id in self._deferred or (ledger_id in locked and ledger_id not in self._held):
                continue
            elif await self._lock(ledger_id):
                wait_s = min(wait_s, await self._locked_one(ledger_id))
                if not await self._marks.enabled():
                    break
        return wait_s

    async def _lock(self, ledger_id: LedgerId) -> bool:
        self._held.add(ledger_id)
        if await self._marks.lock(ledger_id, self._options.node_id):
            return True
        self._held.discard(ledger_id)
        return False

    async def _unlock(self, ledger_id: LedgerId) -> None:
        await self._marks.unlock(ledger_id)
        self._held.discard(ledger_id)

    async def _load_racks(self) -> None:
        """Loads the racks. Copies must not make the racks worse, nor wait until a damaged rack node is
        repaired."""
        try:
            await self._placement.racks.load()
        except RacksError as error:  # older racks are better than no copies
            _log.warning("copies are placed by the racks that were known before: %s", error)

    async def _locked_one(self, ledger_id: LedgerId) -> float:
        """Repairs a ledger that this worker has locked; returns the seconds until the next attempt."""
        try:
            done = await self._repair(ledger_id)
        except (LedgerError, CorruptDataError, MetadataError) as error:
            _log.warning("ledger %d could not be repaired: %s", ledger_id, error)
            done = False
        if ledger_id in self._deferred:
            return _IDLE_S
        await self._unlock(ledger_id)
        if done:
            self._failures.pop(ledger_id, None)
            self.repaired += 1
            return _IDLE_S
        self.failed += 1
        count, _ = self._failures.get(ledger_id, (0, 0.0))
        pause_s = min(self._options.retry_first_s * 2.0**count, self._options.retry_max_s)
        self._failures[ledger_id] = (min(count + 1, 16), asyncio.get_running_loop().time() + pause_s)
        return pause_s

    async def _repair(self, ledger_id: LedgerId) -> bool:
        """Restores what copies it can; returns whether the mark is gone."""
        found = await self._marks.get(ledger_id)
        if found is None:
            return True
        mark, version = found
        doubted = frozenset(mark.replicas)
        try:
            lacks = await self._lacks(ledger_id, doubted)
            for lack in lacks:
                if not lack.fragment.is_open:
                    # Read again for each fragment: the last repair has changed it.
                    stored = await self._client.cluster.ledgers.read(ledger_id)
                    await self._replicator.repair(stored, lack, await self._available())
            if lacks:
                lacks = await self._lacks(ledger_id, doubted)
            if self._options.check_placement_s > 0:
                await self._place(ledger_id)
        except NoSuchLedgerError:
            lacks = []
        if self._replicator.rules.is_whole(lacks):
            return await self._marks.replicated(ledger_id, version)
        if any(lack.fragment.is_open for lack in lacks):
            self._defer(ledger_id)
        return False

    async def _place(self, ledger_id: LedgerId) -> None:
        """Moves copies to other racks where they are in too few."""
        stored = await self._client.cluster.ledgers.read(ledger_id)
        plan = await self._placement.plan(stored)
        for fragment, successors in plan:
            # Read again for each fragment: the last move has changed it.
            stored = await self._client.cluster.ledgers.read(ledger_id)
            await self._replicator.move(stored, fragment, successors)
        self.placed += bool(plan)

    async def _lacks(self, ledger_id: LedgerId, doubted: frozenset[str] = frozenset()) -> Sequence[Lack]:
        stored = await self._client.cluster.ledgers.read(ledger_id)
        return await self._checker.lacks(stored, await self._available(), doubted)

    async def _available(self) -> frozenset[str]:
        return (await self._bookies.bookies()).all()

    def _defer(self, ledger_id: LedgerId) -> None:
        """Gives the writer of an open ledger time to replace a lost bookie, and closes the ledger after
        that."""
        if ledger_id not in self._deferred:
            self._deferred.add(ledger_id)
            self.deferred += 1
            self._tasks.spawn(self._after_grace(ledger_id))

    async def _after_grace(self, ledger_id: LedgerId) -> None:
        try:
            await pause(self._options.open_ledger_grace_s)
            if any(lack.fragment.is_open for lack in await self._lacks(ledger_id)):
                stored = await self._client.cluster.ledgers.read(ledger_id)
                _log.warning(
                    "ledger %d has lost a bookie, its writer did not replace it, and the ledger is closed",
                    ledger_id,
                )
                await self._client.open(ledger_id, stored.metadata.password, recover=True)
        except (LedgerError, CorruptDataError, MetadataError) as error:
            # It is still marked: the next round handles it.
            _log.warning("ledger %d could not be closed: %s", ledger_id, error)
        finally:
            self._deferred.discard(ledger_id)
        # The unlocking is an event for this worker too, which continues with it then.
        try:
            await self._unlock(ledger_id)
        except MetadataError as error:
            _log.warning("ledger %d is still locked: %s", ledger_id, error)
            self._changed.set()
