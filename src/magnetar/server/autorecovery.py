"""The process of `magnetar autorecovery`: makes copies anew that lost bookies had."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import magnetar
from magnetar.base.errors import StartupError
from magnetar.ledger.autorecovery.node import AutoRecoveryNode
from magnetar.ledger.autorecovery.options import RecoveryOptions
from magnetar.metadata.bookkeeper.cluster import open_tree
from magnetar.metadata.bookkeeper.ledger_layouts import LayoutError
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.keys import BOOKIE_RACKS
from magnetar.metadata.opening import open_metadata, parse_metadata_url
from magnetar.runtime import loop as event_loop
from magnetar.runtime.clock import SystemClock
from magnetar.server.banner import remove_ready_file, write_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """One node of auto-recovery."""

    metadata: str
    """URL of the cluster."""
    node_id: str | None
    """Name in votes and locks; None: host and process id."""
    lost_bookie_delay_s: int = 0
    open_ledger_grace_s: float = 30.0
    check_all_s: float = 604_800.0
    check_share: float = 0.0
    check_replicas_s: float = 0.0
    check_placement_s: float = 0.0
    racks_min: int = 2
    racks_path: str = BOOKIE_RACKS
    bytes_per_s: float | None = None
    """These nine are those of `RecoveryOptions`."""
    session_timeout_ms: int = 30_000
    """How long the cluster waits for a node that says nothing before another one does its work."""
    ready_file: Path | None = None


def run(config: AutoRecoveryConfig) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises StartupError, MetadataError."""
    return event_loop.run(_serve(config))


async def _serve(config: AutoRecoveryConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock, url = SystemClock(), parse_metadata_url(config.metadata)
    options = RecoveryOptions(
        node_id=config.node_id or f"{socket.gethostname()}-{os.getpid()}",
        lost_bookie_delay_s=config.lost_bookie_delay_s,
        open_ledger_grace_s=config.open_ledger_grace_s,
        check_all_s=config.check_all_s,
        check_share=config.check_share,
        check_replicas_s=config.check_replicas_s,
        check_placement_s=config.check_placement_s,
        racks_min=config.racks_min,
        racks_path=config.racks_path,
        bytes_per_s=config.bytes_per_s,
    )
    store = await open_metadata(url, clock, session_timeout_ms=config.session_timeout_ms)
    try:
        try:
            tree = await open_tree(store, url.root, layout=url.layout)
        except (ClusterNotInitializedError, LayoutError) as error:
            raise StartupError(str(error)) from error
        node = await AutoRecoveryNode.start(store, tree, clock, options)
        try:
            _tell(config, options.node_id)
            await stop.wait()
        finally:
            await node.close()
            if config.ready_file is not None:
                remove_ready_file(config.ready_file)
    finally:
        await store.close()
    return 0


def _tell(config: AutoRecoveryConfig, node_id: str) -> None:
    sys.stdout.write(f"Magnetar {magnetar.__version__} auto-recovery {node_id} is ready\n")
    sys.stdout.flush()
    if config.ready_file is not None:
        write_ready(config.ready_file, {"node_id": node_id, "pid": os.getpid()})
