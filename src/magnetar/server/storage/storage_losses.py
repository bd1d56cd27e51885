"""Records entries that an operator gives up because no bookie and no object store has them any more.

The server may run meanwhile: it reads the file again at each hole that it meets.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.given_up import GivenUp, GivenUpFile, read_given_up, write_given_up
from magnetar.managedlog.holes import HolePolicy
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.storage.datafolder import FolderPaths, losses_dir
from magnetar.server.storage.opened_stores import MessageStores


def accept_loss(data: Path, ledger: LedgerId, first: int, last: int) -> None:
    """Records that consumers may skip those entries from `first` to `last` of a ledger that cannot be read.

    Raises StartupError when `data` is not a data folder or the record cannot be read; OSError.
    """
    if not (data / "FORMAT").exists() or not (data / "metadata").is_dir():
        raise StartupError(f"{data} is not a data folder of a server: name it with --data")
    folder = losses_dir(data)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    given_up = GivenUp(ledger, first, last, "", "", 0, "no good copy is left", now)
    write_given_up(folder, [*read_given_up(folder), given_up])


async def holes_of(
    config: StandaloneConfig,
    stores: MessageStores,
    folder: FolderPaths | None,
    cleanup: AsyncExitStack,
    *,
    shares: bool,
) -> HolePolicy:
    """The policy by which consumers skip lost entries: what was given up stands in the data folder, or in the
    metadata of a cluster of several brokers. Raises StartupError."""
    policy = HolePolicy(skip_all=config.auto_skip_non_recoverable_data)
    used = stores.beside or (None if shares else folder)
    if used is not None:
        policy.given_up = GivenUpFile(losses_dir(used.root)).ranges
    elif shares:
        # One broker alone need not load it.
        from magnetar.server.storage.cluster_losses import ClusterLosses

        losses = ClusterLosses(stores.metadata)
        cleanup.push_async_callback(losses.close)
        await losses.begin()
        policy.given_up = losses.ranges
    return policy
