"""What every log of a process works with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.ledger.api import Ledgers
from magnetar.managedlog.config import ManagedLogConfig
from magnetar.metadata.store import MetadataStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LogResources:
    """The stores, the clock and the configuration of logs and their cursors; they outlive the logs."""

    store: MetadataStore
    """The lists of ledgers, and small states of cursors."""
    ledgers: Ledgers
    """The entries of logs, and the changes of cursors."""
    clock: Clock
    config: ManagedLogConfig
    spawn: Callable[[Coroutine[object, object, None]], None]
    """Runs background work."""
