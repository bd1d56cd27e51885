"""The command `magnetar autorecovery decommission`, which takes a bookie out of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.base.errors import StartupError
from magnetar.ledger.autorecovery.decommission import Decommission, DecommissionError
from magnetar.ledger.tree_registry import TreeLedgerRegistry
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.election import AuditorElection
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.bookkeeper.tree_registry import TreeBookieRegistry
from magnetar.metadata.bookkeeper.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class DecommissionConfig:
    """The bookie to decommission."""

    metadata: str
    """URL of the cluster's metadata service."""
    bookie_id: str
    timeout_s: float | None = None
    """Seconds to wait; None: no limit."""


def run(config: DecommissionConfig, told: Callable[[int], None], warn: Callable[[str], None]) -> None:
    """Waits until no ledger needs the bookie. `told` gets the number of ledgers that are left, `warn` the
    reasons why the work may not proceed.

    Raises DecommissionError, also when the time is over, StartupError, MetadataError.
    """
    event_loop.run(_run(config, told, warn))


async def _run(config: DecommissionConfig, told: Callable[[int], None], warn: Callable[[str], None]) -> int:
    clock, url = SystemClock(), parse_metadata_url(config.metadata)
    store = await open_metadata(url, clock)
    try:
        try:
            tree = await open_tree(store, url.root, layout=url.layout)
        except (ClusterNotInitializedError, LayoutError) as error:
            raise StartupError(str(error)) from error
        marks = UnderreplicatedLedgers(store, tree, clock)
        if not await marks.enabled():
            warn("auto-recovery is disabled: nothing is copied until it is enabled")
        elif await AuditorElection(store, marks.paths, "").auditor() is None:
            warn(
                "no node of auto-recovery runs: start `magnetar autorecovery`, nothing is copied without one"
            )
        bookies = TreeBookieRegistry(store, tree)
        work = Decommission(TreeLedgerRegistry(store, tree), bookies, marks, config.bookie_id)
        try:
            async with asyncio.timeout(config.timeout_s):
                await work.run(told)
        except TimeoutError:
            raise DecommissionError(
                f"bookie {config.bookie_id} still holds ledgers after {config.timeout_s:g} seconds; they are"
                " marked, and the command may be run again"
            ) from None
        finally:
            await bookies.close()
    finally:
        await store.close()
    return 0
