"""Sends producers away when the disk that holds a broker's messages is nearly full."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.runtime.tasks import in_slices

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker")

_TOPICS_PER_TURN: Final = 50
"""Topics whose producers are detached before other tasks run."""


async def disk_measured(broker: BrokerPort, used_percent: float) -> None:
    """The used share of the disk with a broker's messages: producers are detached when it is too high."""
    mark = broker.disk
    if not mark.measured(used_percent):
        return
    if mark.refusal is None:
        _log.warning("messages are accepted again: %.1f %% of the disk are used", used_percent)
        return
    _log.error("producers are disconnected: %s", mark.refusal)
    async for topic in in_slices(list(broker.topics.values()), _TOPICS_PER_TURN):
        for producer in list(topic.producers.values()):
            topic.send_producer_away(producer)
