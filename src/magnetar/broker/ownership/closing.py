"""The loaded topics of a bundle, when it leaves this broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import TopicName
from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.bundle import Bundle
from magnetar.runtime.tasks import gathered, pause

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.ownership")

_CLOSED_TOGETHER: Final = 100
"""Topics of a bundle that are closed at the same time."""
_AGAIN_S: Final = 0.1
"""After a topic that could not be closed in time."""


class BundleTopics:
    """The closing topics of one broker's bundles."""

    def __init__(self, broker: BrokerPort, kept: TopicName) -> None:
        """`kept`: is this broker's whatever bundles it has."""
        self._broker = broker
        self._kept = kept

    def mark(self, bundle: Bundle, *, lost: bool, to: Addresses) -> None:
        """What must be so before this turn of the loop ends: clients are told where to go, and those of a
        `lost` bundle are sent away."""
        for topic in list(self._broker.topics.values()):
            if self._leaves(topic.name, bundle):
                topic.assigned = to
                if lost and not topic.closed:
                    topic.disconnect_clients()
        for passing in list(self._broker.nonpersistent.topics.values()):
            if bundle.has(passing.name):
                passing.assigned = to
                self._broker.nonpersistent.remove(passing)

    async def close(self, bundle: Bundle) -> None:
        """Returns when no topic of the bundle is loaded or being loaded."""
        registry = self._broker.registry
        while True:
            names = {*registry.topics, *(name for name, _, _ in registry.under_way())}
            here = [name for text in names if self._leaves(name := TopicName.parse(text), bundle)]
            if not here:
                return
            for start in range(0, len(here), _CLOSED_TOGETHER):
                await gathered(self._close_one(name) for name in here[start : start + _CLOSED_TOGETHER])

    def _leaves(self, name: TopicName, bundle: Bundle) -> bool:
        return name != self._kept and bundle.has(name)

    async def _close_one(self, name: TopicName) -> None:
        try:
            await self._broker.registry.unload(name)
        except MagnetarError as error:
            # Its storage does not answer. The record of the bundle stays until it does.
            _log.warning("%s", error)
            await pause(_AGAIN_S)
