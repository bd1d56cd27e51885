"""What every persistent topic of a broker, and each of its subscriptions, works with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.base.clock import Clock
    from magnetar.base.loop_shares import LoopShares
    from magnetar.broker.session.outputs import OutputBudget
    from magnetar.runtime.alarms import Alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResources:
    """The broker's clock, timers, tasks and memory for outputs; they outlive its topics."""

    clock: Clock
    alarms: Alarms
    """Tell when entries are due."""
    spawn: Callable[[Coroutine[object, object, object]], None]
    """Runs background work, reads of entries among it."""
    outputs: OutputBudget
    """Memory that reads for consumers may take, over all topics."""
    turns: LoopShares
    """Shares of the event loop for work that takes more than a turn, tenant after tenant."""
