"""One node of auto-recovery: a candidate for auditor, and a replication worker."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.ledger.autorecovery.auditor import Auditor
from magnetar.ledger.autorecovery.checker import LedgerChecker
from magnetar.ledger.autorecovery.checks import AuditChecks
from magnetar.ledger.autorecovery.entry_lists import EntryLists
from magnetar.ledger.autorecovery.placing import PlacementCheck
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.ledger.autorecovery.repair_rules import REPAIR_RULES, RepairRules
from magnetar.ledger.autorecovery.replicating import Replicator
from magnetar.ledger.autorecovery.replication_worker import ReplicationWorker
from magnetar.ledger.client.cluster import Cluster, by_chance
from magnetar.ledger.client.ledger_client import LedgerClient
from magnetar.ledger.client.ledger_options import LedgerClientOptions
from magnetar.ledger.client.placement import RackPlacement
from magnetar.ledger.client.pool import BookiePool
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from magnetar.metadata.bookkeeper.election import AuditorElection
from magnetar.metadata.bookkeeper.racks import BookieRacks
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import TaskGroup


class AutoRecoveryNode:
    """Made by `start`; leaves the store open."""

    def __init__(
        self,
        store: MetadataStore,
        tree: BookKeeperTree,
        clock: Clock,
        options: RecoveryOptions,
        client_options: LedgerClientOptions | None = None,
        rules: RepairRules = REPAIR_RULES,
    ) -> None:
        """For `start` only."""
        self.marks = UnderreplicatedLedgers(store, tree, clock)
        self._bookies = TreeBookieRegistry(store, tree)
        ledgers = TreeLedgerRegistry(store, tree)
        client_options = client_options or LedgerClientOptions()
        racks = BookieRacks(store, options.racks_path)
        placement = RackPlacement(racks.of, racks_min=options.racks_min, shuffled=by_chance)
        cluster = Cluster(ledgers, self._bookies, client_options, placement=placement)
        self._client = LedgerClient(cluster)
        # Lists of entries need version 3.
        self._listing = BookiePool(cluster.pool.resolve, replace(client_options, use_v2=False))
        self.election = AuditorElection(store, self.marks.paths, options.node_id)
        checker = LedgerChecker(cluster, EntryLists(self._listing), share=options.check_share, rules=rules)
        placing = PlacementCheck(cluster, self._bookies, racks, options.racks_min)
        self.checks = AuditChecks(ledgers, self._bookies, self.marks, checker, placing, options)
        self.replicator = Replicator(cluster, bytes_per_s=options.bytes_per_s, rules=rules)
        self.auditor = Auditor(ledgers, self._bookies, self.marks, self.election, self.checks, options, rules)
        self.worker = ReplicationWorker(
            self._client, self._bookies, self.marks, checker, placing, self.replicator, options
        )
        self._tasks = TaskGroup("auto-recovery")

    @classmethod
    async def start(
        cls,
        store: MetadataStore,
        tree: BookKeeperTree,
        clock: Clock,
        options: RecoveryOptions,
        client_options: LedgerClientOptions | None = None,
        rules: RepairRules = REPAIR_RULES,
    ) -> AutoRecoveryNode:
        """Starts the node. Raises MetadataError."""
        node = cls(store, tree, clock, options, client_options, rules)
        await node.marks.prepare()
        node._tasks.spawn(node.auditor.run())
        node._tasks.spawn(node.worker.run())
        return node

    async def close(self) -> None:
        """Stops the work and resigns as auditor."""
        await self._tasks.close()
        # The vote is ephemeral: the end of the session removes it.
        with contextlib.suppress(MetadataError):
            await self.election.withdraw()
        await self._listing.close()
        await self._client.close()
        await self._bookies.close()
