"""A node of auto-recovery in the simulated cluster."""

from __future__ import annotations

import asyncio

from magnetar.base.errors import MetadataError
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.recovery_options import RecoveryOptions
from magnetar.metadata.bookkeeper.bookkeeper_tree import BookKeeperTree
from sim.cluster.clock import WorldClock
from sim.cluster.loop import Process
from sim.cluster.owner import OPTIONS
from sim.cluster.store import SimStore, StoreNode
from sim.rules import RulesInForce

_RETRY_S = 0.2
CHECK_S = 3.0
"""Between two checks."""


class RecoveryNode:
    """One node over its lives."""

    def __init__(
        self, node: StoreNode, tree: BookKeeperTree, name: str, *, delay_s: int, checks: str
    ) -> None:
        """`delay_s`: how long a single lost bookie is waited for; `checks`: "all" reads every copy now and
        then, "replicas" looks which there are, "none"."""
        self.name = name
        self.process = Process(name)
        self.process.is_up = False
        self._node = node
        self._tree = tree
        self._options = RecoveryOptions(
            node_id=name,
            lost_bookie_delay_s=delay_s,
            open_ledger_grace_s=0.2,
            check_all_s=CHECK_S if checks == "all" else 0.0,
            check_replicas_s=CHECK_S if checks == "replicas" else 0.0,
            check_share=1.0,
            retry_first_s=0.1,
            retry_max_s=1.0,
        )

    def start(self) -> None:
        """Its process begins."""
        if not self.process.is_up:
            self._node.world.note(self.name, "starts")
            self.process = Process(self.name)
            self._node.wires.loop.start(self.process, self._main(SimStore(self._node, self.process)))

    def crash(self) -> None:
        """The process is gone."""
        self._node.wires.loop.kill(self.process)

    async def _main(self, store: SimStore) -> None:
        clock = WorldClock(self._node.world)
        while True:
            try:
                node = await AutoRecoveryNode.start(
                    store, self._tree, clock, self._options, OPTIONS, RulesInForce.repair
                )
            except MetadataError:
                await asyncio.sleep(_RETRY_S)
            else:
                break
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await node.close()
